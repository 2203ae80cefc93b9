// Figures of attention on scores whose answer is known, and the files of what is made of them: a profile, networks,
// codebooks; and that of the rows by which codebooks are trained.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "../made_codebooks.hpp"
#include "attention_profile.hpp"
#include "codebook_file.hpp"
#include "network_file.hpp"
#include "profile_file.hpp"
#include "row_recorder.hpp"

namespace {

using winnow::ggml::AttentionProfile;
using winnow::ggml::AttentionSample;
using winnow::ggml::LayerProfile;
using winnow::ggml::read_network;
using winnow::ggml::read_profile;

void expect(bool condition, const std::string &text) {
    if (condition) return;
    std::fprintf(stderr, "FAILED: %s\n", text.c_str());
    std::exit(1);
}

void expect_near(double found, double wanted, const std::string &what) {
    expect(std::abs(found - wanted) <= 1e-5 * std::max(1.0, std::abs(wanted)),
           what + " is " + std::to_string(found) + ", expected " + std::to_string(wanted));
}

// One layer and head, a query for each row of logits.
LayerProfile profile_of(const std::vector<std::vector<float>> &rows, bool is_cleared_between = false) {
    AttentionProfile profile(1, 1, static_cast<int64_t>(rows.front().size()));
    for (const std::vector<float> &row : rows) {
        const winnow_tensor *tensor = profile.scores(1);
        std::copy(row.begin(), row.end(), static_cast<float *>(tensor->data));
        profile.add(0, 0);
        if (is_cleared_between) profile.end_sequences();
    }
    profile.end_sequences();
    const std::vector<LayerProfile> layers = profile.layers({"cache_k_l0"});
    expect(layers.size() == 1 && layers[0].name == "cache_k_l0" && layers[0].entropy.size() == 1, "not one head");
    return layers[0];
}

void test_even() {
    std::vector<float> row(100, 3.0f);
    row.resize(150, -INFINITY); // not stored
    const LayerProfile profile = profile_of({row, row});
    expect_near(profile.entropy[0], std::log(100.0), "the entropy of 100 equal tokens");
    expect_near(profile.concentration[0], .1, "the concentration of equal tokens");
    expect_near(profile.variance[0], 0, "the variance of what does not change");
    expect(profile.queries == 2, "two queries are counted");
}

void test_one_token() {
    std::vector<float> row(100, -1000.0f);
    row[7] = 1000;
    const LayerProfile profile = profile_of({row});
    expect_near(profile.entropy[0], 0, "the entropy of one token");
    expect_near(profile.concentration[0], 1, "the concentration of one token");
}

void test_movement() {
    // One token in turn has all: each of the two has variance 1/4, the other 98 none.
    std::vector<float> first(100, -1000.0f), second = first;
    first[0] = second[1] = 1000;
    expect_near(profile_of({first, second}).variance[0], .5 / 100, "the variance of two that take turns");
    expect_near(profile_of({first, second}, true).variance[0], 0, "the variance of one query a sequence");
}

void test_few() {
    const LayerProfile profile = profile_of({std::vector<float>(AttentionProfile::fewest_seen - 1, 0.0f)});
    expect(profile.queries == 0, "a query that sees few tokens was counted");
}

// Token i lies in column order[i]; the later the token, the larger its probability.
void test_newest() {
    AttentionProfile profile(1, 1, 200);
    std::vector<int32_t> order(120);
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i * 7 % 120 + 40);
    std::vector<float> row(200, -INFINITY);
    const auto add = [&](size_t tokens) {
        float *scores = static_cast<float *>(profile.scores(1)->data);
        for (size_t i = 0; i < tokens; ++i) row[static_cast<size_t>(order[i])] = std::log(static_cast<float>(i + 1));
        std::copy(row.begin(), row.end(), scores);
        profile.add(0, 0);
    };
    profile.append(0, 0, std::span(order).first(80));
    add(80); // too few for 100: 31 + ... + 80 of 1 + ... + 80
    profile.append(0, 0, std::span(order).subspan(80));
    add(120);
    profile.end_sequences();
    const LayerProfile its = profile.layers({"cache_k_l0"}).front();
    expect_near(its.newest_50[0], (2775.0 / 3240 + 4775.0 / 7260) / 2, "what the newest 50 hold");
    expect_near(its.newest_100[0], 7050.0 / 7260, "what the newest 100 hold");
}

// Two query heads of one KV head: the one attends to token 50 alone, the other to all alike.
void test_samples() {
    constexpr int32_t columns = 700, group = 2;
    AttentionProfile profile(1, group, columns, 1);
    for (int32_t query = 0; query < columns; ++query) {
        const std::vector<int32_t> column{columns - 1 - query};
        profile.append(0, 0, column);
        float *scores = static_cast<float *>(profile.scores(1)->data);
        std::fill(scores, scores + group * columns, -INFINITY);
        for (int32_t token = 0; token <= query; ++token) {
            scores[columns - 1 - token] = token == 50 ? 100.0f : 0.0f;
            scores[columns + columns - 1 - token] = 0;
        }
        profile.add(0, 0);
    }
    profile.end_sequences();
    const std::vector<std::vector<AttentionSample>> samples = profile.layers({"cache_k_l0"}).front().samples;
    // They begin at 256 and 384 queries; those that begin at 512 and 640 lack a part of their horizon.
    expect(samples.size() == 1 && samples[0].size() == 64, "not the samples of two times");
    for (size_t i = 0; i < samples[0].size(); ++i) {
        const AttentionSample &sample = samples[0][i];
        const double queries = i < 32 ? 256 : 384, token = queries - sample.age;
        expect(sample.age >= 32 && token >= 4, "a token that no policy would evict was sampled");
        double importance = 0, attention = 0;
        const auto mean = [&](double seen) { return ((token == 50 ? 1 : 0) + 1 / seen) / 2; };
        // Queries that see fewer than 32 tokens do not count, and before token 50 all logits are alike.
        for (double seen = std::max(token + 1, 32.0); seen <= queries; ++seen)
            importance = .99 * importance + (seen > 50 ? mean(seen) : 1 / seen);
        for (double seen = queries + 1; seen <= queries + 256; ++seen) attention += mean(seen);
        expect_near(sample.importance, importance, "the importance of a sample");
        expect_near(sample.attention, attention, "the attention that a sample got");
    }
}

// The columns of a sliding window are used again: what another token gets there is not a sample's. The newest 10 tokens
// get more than others.
void test_samples_of_a_window() {
    constexpr int32_t columns = 400, window = 300;
    AttentionProfile profile(1, 1, columns, 1);
    for (int32_t query = 0; query < 1200; ++query) {
        profile.append(0, 0, std::vector<int32_t>{query % columns});
        float *scores = static_cast<float *>(profile.scores(1)->data);
        std::fill(scores, scores + columns, -INFINITY);
        for (int32_t token = std::max(query - window + 1, 0); token <= query; ++token)
            scores[token % columns] = query - token < 10 ? 3.0f : 0.0f;
        profile.add(0, 0);
    }
    profile.end_sequences();
    const auto probability = [](double seen, double age) { // of the query that is the so manyth, ages from 1 on
        const double sum = std::min<double>(seen, window) - 10 + 10 * std::exp(3.0);
        return age > window ? 0 : (age <= 10 ? std::exp(3.0) : 1.0) / sum;
    };
    const std::vector<AttentionSample> samples = profile.layers({"cache_k_l0"}).front().samples.at(0);
    expect(samples.size() > 40, "hardly a sample of a window was kept");
    size_t found = 0;
    for (const AttentionSample &sample : samples) {
        for (double queries = 256; queries + 256 <= 1200; queries += 128) {
            const double token = queries - sample.age; // 0 for the first
            double importance = 0, attention = 0;
            for (double seen = std::max(token + 1, 32.0); seen <= queries; ++seen)
                importance = .99 * importance + probability(seen, seen - token);
            for (double seen = queries + 1; seen <= queries + 256; ++seen) attention += probability(seen, seen - token);
            if (std::fabs(sample.importance - importance) < 1e-6 && std::fabs(sample.attention - attention) < 1e-6) {
                ++found;
                break;
            }
        }
        expect(sample.age <= window, "a token that no query sees was sampled");
    }
    expect(found == samples.size(), "a sample has what another token in its column got");
}

template <typename Read>
void expect_refused(const std::string &path, const std::string &wanted, Read &&read) {
    try {
        read();
    } catch (const std::runtime_error &error) {
        expect(std::string(error.what()).find(wanted) != std::string::npos,
               std::string(error.what()) + " does not say " + wanted);
        return;
    }
    expect(false, path + " was not refused: expected " + wanted);
}

void expect_network_refused(const std::string &path, const std::string &wanted) {
    expect_refused(path, wanted, [&] { read_network(path, {"cache_k_l0"}, 2); });
}

void test_network_file(const std::string &path) {
    const auto write = [&](const std::string &text) { std::ofstream(path) << text; };
    const std::string begin = R"({"winnow_network": 1, "hidden": [)",
                      units = "[1,2,3],[4,5,6],[7,8,9],[0,0,0],[0,0,0],"
                              "[0,0,0],[0,0,0],[-1,0.5,1e2]",
                      layers = R"(], "layers": {"cache_k_l0": [[1,2,3,4,5,6,7,8],[8,7,6,5,4,3,2,1]]}})";
    write(begin + units + layers);
    const std::vector<double> numbers = read_network(path, {"cache_k_l0"}, 2);
    expect(numbers.size() == 2 * 32, "not the numbers of two heads");
    expect(std::vector(numbers.begin(), numbers.begin() + 8) == std::vector<double>({1, 2, 1, 3, 4, 5, 2, 6}),
           "the first units are not importance, age, bias, out");
    expect(std::vector(numbers.end() - 4, numbers.end()) == std::vector<double>({-1, .5, 1, 100}), "nor is the last");
    expect(read_network(path, {}, 0).empty(), "a network without layers");
    expect_network_refused("", "network_file=FILE");
    write("cache_k_l0 1 2 3\n");
    expect_network_refused(path, "is not JSON");
    write("{}");
    expect_network_refused(path, "winnow calibrate");
    write(R"({"winnow_network": 2})");
    expect_network_refused(path, "has version 2 of networks, expected 1");
    write(begin + "[1,2,3]" + layers);
    expect_network_refused(path, "has 1 hidden units, expected 8");
    write(begin + "[1,2,null]" + units.substr(7) + layers);
    expect_network_refused(path, "hidden unit 0");
    write(begin + "[1,2,3e9]" + units.substr(7) + layers);
    expect_network_refused(path, "hidden unit 0");
    write(begin + units + R"(], "layers": {"cache_k_l0": [[1,2]]}})");
    expect_network_refused(path, "biases of layer cache_k_l0");
    write(begin + units + R"(], "layers": {"cache_k_l0": [[1,2,3,4,5,6,7,8]]}})");
    expect_network_refused(path, "1 KV heads in layer cache_k_l0, expected 2");
    write(begin + units + R"(], "layers": {"cache_k_l1": []}})");
    expect_network_refused(path, "none that is called cache_k_l0");
    std::remove(path.c_str());
    expect_network_refused(path, "cannot read");
}

void expect_codebooks_refused(const std::string &path, const std::string &wanted) {
    expect_refused(path, wanted, [&] { winnow::ggml::read_codebook_file(path, {"cache_k_l0"}); });
}

void test_codebook_file(const std::string &path) {
    using winnow::ggml::read_codebook_file;
    const std::vector<uint8_t> first = winnow::made_record("cache_k_l0", 2, 16),
                               second = winnow::made_record("cache_k_l10", 1, 32);
    std::vector<uint8_t> both = second;
    both.insert(both.end(), first.begin(), first.end());
    const auto write = [&](const std::vector<uint8_t> &bytes, size_t count) {
        std::ofstream(path, std::ios::binary)
            .write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(count));
    };
    const auto is_same = [](const std::vector<std::byte> &found, const std::vector<uint8_t> &wanted) {
        return found.size() == wanted.size() && std::memcmp(found.data(), wanted.data(), wanted.size()) == 0;
    };
    write(both, both.size());
    expect(is_same(read_codebook_file(path, {"cache_k_l10", "cache_k_l0"}), both), "not the records of both layers");
    expect(is_same(read_codebook_file(path, {"cache_k_l0"}), first), "not the record of a layer");
    expect(read_codebook_file(path, {}).empty(), "codebooks without layers");
    for (size_t count = 0; count < both.size(); count += count < 50 ? 1 : 333)
        if (count != second.size()) {
            write(both, count);
            expect_codebooks_refused(path, "cut short");
        }
    write(second, second.size());
    expect_codebooks_refused(path, "has 1 layers, and none that is called cache_k_l0");
    both[8] = 3;
    write(both, both.size());
    expect_codebooks_refused(path, "has version 3 of codebooks, expected 1");
    both[8] = 1;
    for (size_t at = 12; at < 24; ++at) both[at] = 0xff; // sizes without end
    write(both, both.size());
    expect_codebooks_refused(path, "cut short");
    expect_codebooks_refused("", "codebook_file=FILE");
    std::remove(path.c_str());
    expect_codebooks_refused(path, "cannot be read");
}

winnow_tensor rows_of(std::vector<float> &of, int64_t heads, int64_t stride) {
    constexpr int64_t tokens = 9;
    for (size_t i = 0; i < of.size(); ++i) of[i] = static_cast<float>(i);
    winnow_tensor tensor{};
    tensor.type = WINNOW_TYPE_F32;
    tensor.data = of.data();
    const int64_t shape[] = {1, heads, tokens, 16}, strides[] = {0, 4 * stride * tokens, 4 * stride, 4};
    std::copy_n(shape, 4, tensor.shape);
    std::copy_n(strides, 4, tensor.stride);
    return tensor;
}

// Of two heads and 9 tokens, with gaps between the rows of keys: rows of 16 elements, whose elements tell where they
// lay. Queries are of tokens 0 and 8, or all.
void test_row_recorder(const std::string &path, bool is_whole) {
    std::vector<float> k(2 * 9 * 24), v(2 * 9 * 16), q(9 * 16);
    winnow_tensor keys = rows_of(k, 2, 24), values = rows_of(v, 2, 16), queries = rows_of(q, 1, 16);
    winnow_cache_step_desc step{};
    step.k = &keys;
    step.v = &values;
    step.q = &queries;
    {
        winnow::ggml::RowRecorder recorder(path, is_whole);
        recorder.add("cache_k_l3", step);
        recorder.add("cache_k_l3", step);
        step.k = nullptr;
        try {
            recorder.add("cache_k_l3", step);
            expect(false, "a step without keys was recorded");
        } catch (const std::runtime_error &) {
        }
    }
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    std::vector<float> rows;
    for (size_t row = 0; row < 2 * 9; ++row) rows.push_back(static_cast<float>(24 * row));
    for (size_t row = 0; is_whole && row < 2 * 9; ++row) rows.push_back(static_cast<float>(16 * row));
    for (size_t row = 0; row < 9; row += is_whole ? 1 : 8) rows.push_back(static_cast<float>(16 * row));
    constexpr size_t header = 8 + 64 + 9 * 8;
    const size_t record = header + 4 * 16 * rows.size();
    expect(bytes.size() == 2 * record && bytes.substr(0, record) == bytes.substr(record), "not two equal records");
    expect(bytes.compare(0, 8, "WNROWS2", 8) == 0, "not the mark");
    expect(std::string(bytes.c_str() + 8) == "cache_k_l3", "not the layer's name");
    int64_t numbers[9];
    std::memcpy(numbers, bytes.data() + 8 + 64, sizeof numbers);
    expect(std::vector(numbers, numbers + 9) ==
               std::vector<int64_t>({WINNOW_TYPE_F32, 2, 9, 16, WINNOW_TYPE_F32, is_whole ? 16 : 0, WINNOW_TYPE_F32, 1,
                                     is_whole ? 9 : 2}),
           "not the sizes of keys, values and queries");
    for (size_t row = 0; row < rows.size(); ++row) {
        float own[16];
        std::memcpy(own, bytes.data() + header + sizeof own * row, sizeof own);
        expect(own[0] == rows[row] && own[15] == rows[row] + 15, "not the elements of row " + std::to_string(row));
    }
    std::remove(path.c_str());
}

void expect_refused(const std::string &path, const std::string &wanted) {
    try {
        read_profile(path, {"cache_k_l0", "cache_k_l1"});
    } catch (const std::runtime_error &error) {
        expect(std::string(error.what()).find(wanted) != std::string::npos,
               std::string(error.what()) + " does not say " + wanted);
        return;
    }
    expect(false, path + " was not refused");
}

void test_file(const std::string &path) {
    const auto write = [&](const char *text) { std::ofstream(path) << text; };
    write("# a comment\ncache_k_l1 1 2 3\n\ncache_k_l0 4 5e-1 6 # the last\n");
    const std::vector<double> expected{4, .5, 6, 1, 2, 3};
    expect(read_profile(path, {"cache_k_l0", "cache_k_l1"}) == expected,
           "the file's numbers are not in the order of the layers");
    expect(read_profile("", {"cache_k_l0"}).empty(), "a profile without a file");
    write("cache_k_l0 1 2 3\n");
    expect_refused(path, "none that is called cache_k_l1");
    write("cache_k_l0 1 2\n");
    expect_refused(path, "line 1");
    write("cache_k_l0 1 2 3 4\n");
    expect_refused(path, "line 1");
    write("cache_k_l0 1 2 nan\n");
    expect_refused(path, "line 1");
    std::remove(path.c_str());
    expect_refused(path, "cannot read");
}

} // namespace

int main(int argc, char **argv) {
    expect(argc == 2, "expected the name of a file to write");
    test_even();
    test_one_token();
    test_movement();
    test_few();
    test_newest();
    test_samples();
    test_samples_of_a_window();
    test_file(argv[1]);
    test_network_file(argv[1]);
    test_codebook_file(argv[1]);
    for (const bool is_whole : {false, true}) test_row_recorder(argv[1], is_whole);
    return 0;
}
