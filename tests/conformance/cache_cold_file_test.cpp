// The cold tier in a file against the one in memory: two caches that get the same calls, and of which every output,
// every row and every count has to be the same, bit for bit. What the schedules of cache_recall_test.cpp leave out:
// steps of many chunks, drafts, states, files of the other cache, and how the folder is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <numeric>

#include "cache_cases.hpp"
#include "cache_host.hpp"
#include "cache_registration.hpp"
#include "cache_token_rows.hpp"
#include "registered_cases.hpp"
#include "saved_state.hpp"
#include "session.hpp"
#include "temporary_folder.hpp"

namespace winnow::conformance {
namespace {

std::vector<std::byte> bytes_of(const TestTensor& tensor) {
    std::vector<std::byte> bytes;
    tensor.each_row([&](const Index& at) {
        const std::byte* const row = tensor.element(at);
        bytes.insert(bytes.end(), row, row + tensor.row_size());
    });
    return bytes;
}

CacheSetup in_folder(CacheSetup setup, const std::string& folder) {
    setup.recall->cold_tier = folder;
    return setup;
}

class Twins {
public:
    Twins(const CacheSetup& setup, uint64_t seed)
        : setup_(setup), engine_(seed), memory_(subject(), setup), file_(subject(), in_folder(setup, folder_.path())) {}

    void run(int operations) {
        for (int at = 0; at < operations; ++at) {
            ASSERT_NO_FATAL_FAILURE(one()) << "operation " << at << ", " << file_.setup().config();
            ASSERT_EQ(memory_.portrait(), file_.portrait()) << "after operation " << at;
            ASSERT_TRUE(folder_.names().empty()) << "the file has a name";
        }
        const winnow_cache_stats memory = memory_.stats(), file = file_.stats();
        EXPECT_EQ(memory.picks, file.picks);
        EXPECT_EQ(memory.misses, file.misses);
        EXPECT_EQ(memory.bytes, file.bytes);
        EXPECT_EQ(memory.disk_bytes, 0u);
        EXPECT_EQ(memory.bytes_read, 0u);
        // With few tokens a load may be the last that was done, and takes the counts back.
        const bool may_have_read_nothing = setup_.has_cold_budget() && file.misses == 0;
        EXPECT_TRUE(file.bytes_read > 0 || may_have_read_nothing);
    }

    // So many anchors that the packed rows alone are too few to evict as many as an eviction pass would: the residual
    // window's stay all the same.
    void run_full_of_anchors(int64_t anchors) {
        std::vector<int64_t> positions(static_cast<size_t>(anchors));
        std::iota(positions.begin(), positions.end(), setup_.sink);
        both([&](CacheHost& cache) {
            return cache.caches().anchor(cache.get(), 0, positions.data(), positions.size());
        });
        ASSERT_NO_FATAL_FAILURE(steps(0, anchors, 1));
        for (int round = 0; round < 12; ++round) {
            ASSERT_NO_FATAL_FAILURE(steps(0, round % 2 == 0 ? 25 : 1, round % 2 == 0 ? 1 : 9)) << "round " << round;
            ASSERT_EQ(memory_.portrait(), file_.portrait()) << "after round " << round;
            std::vector<int32_t> newest(static_cast<size_t>(setup_.residual));
            std::iota(newest.begin(), newest.end(), static_cast<int32_t>(lengths_[0] - setup_.residual));
            const std::vector<int64_t> kept = memory_.positions(0, 0, 0);
            ASSERT_TRUE(std::includes(kept.begin(), kept.end(), newest.begin(), newest.end()))
                << "one of the newest is gone after round " << round;
        }
        EXPECT_GT(memory_.stats().evictions, 0u);
    }

private:
    int64_t draw(int64_t low, int64_t high) {
        return low + static_cast<int64_t>(engine_() % static_cast<uint64_t>(high - low + 1));
    }

    void one() {
        const int64_t sequence = draw(0, setup_.sequences - 1), kind = draw(1, 100);
        int64_t& length = lengths_[static_cast<size_t>(sequence)];
        if (kind <= 40) return steps(sequence, 1, draw(1, 10));
        if (kind <= 55) return steps(sequence, draw(2, 8), 1); // a draft
        if (kind <= 70) return steps(sequence, draw(9, 120), 1);
        if (kind <= 73) return attend(sequence, draw(1, 40));
        if (kind <= 80) {
            length = std::max<int64_t>(length - draw(0, kind <= 78 ? 7 : 60), 0);
            return both([&](CacheHost& cache) { return cache.caches().truncate(cache.get(), sequence, length); });
        }
        if (kind <= 84 && length > 30) return shift(sequence, length);
        if (kind <= 88) {
            lengths_[static_cast<size_t>(1 - sequence)] = length;
            return both([&](CacheHost& cache) { return cache.caches().copy(cache.get(), sequence, 1 - sequence); });
        }
        if (kind <= 90) return exchange(sequence);
        if (kind <= 94) return move(sequence, memory_.caches().read);
        if (kind <= 97) return move(sequence, memory_.caches().export_rows);
        return save_and_load();
    }

    template <class Call>
    void both(Call&& call) {
        ASSERT_EQ(call(memory_), WINNOW_OK) << memory_.message();
        ASSERT_EQ(call(file_), WINNOW_OK) << file_.message();
    }

    void run_step(int64_t layer, int64_t sequence, int64_t tokens, int64_t queries) {
        const uint64_t seed = engine_();
        StepOptions options;
        options.scores = queries > 0 && draw(1, 4) == 1;
        std::vector<std::vector<std::byte>> outputs, scores;
        for (CacheHost* cache : {&memory_, &file_}) {
            std::mt19937_64 same(seed);
            Step step = draw_step(setup_, same, layer, sequence, tokens, queries, options, setup_.context);
            ASSERT_EQ(cache->run(step), WINNOW_OK) << cache->message();
            outputs.push_back(queries > 0 ? bytes_of(step.out) : std::vector<std::byte>());
            scores.push_back(options.scores ? bytes_of(step.scores) : std::vector<std::byte>());
        }
        ASSERT_TRUE(outputs[0] == outputs[1] && scores[0] == scores[1])
            << tokens << " tokens, " << queries << " queries, layer " << layer;
    }

    void steps(int64_t sequence, int64_t tokens, int64_t count) {
        int64_t& length = lengths_[static_cast<size_t>(sequence)];
        const bool attends = draw(1, 10) > 1;
        for (int64_t at = 0; at < count; ++at) {
            const int64_t now = std::min(tokens, setup_.context - length);
            if (now == 0) return;
            for (int64_t layer = 0; layer < setup_.layers; ++layer)
                ASSERT_NO_FATAL_FAILURE(run_step(layer, sequence, now, attends ? now : 0));
            length += now;
        }
    }

    void attend(int64_t sequence, int64_t queries) {
        queries = std::min(queries, lengths_[static_cast<size_t>(sequence)]);
        for (int64_t layer = 0; layer < setup_.layers && queries > 0; ++layer)
            ASSERT_NO_FATAL_FAILURE(run_step(layer, sequence, 0, queries));
    }

    // A part in the middle goes, and what follows moves down.
    void shift(int64_t sequence, int64_t& length) {
        const int64_t begin = draw(5, length - 20), count = draw(1, 10);
        both([&](CacheHost& cache) { return cache.caches().remove(cache.get(), sequence, begin, begin + count); });
        both([&](CacheHost& cache) { return cache.caches().shift(cache.get(), sequence, begin + count, -1, -count); });
        length -= count;
    }

    TokenRows rows(CacheHost& cache, TokenRowsFunction function, int64_t layer, int64_t sequence) {
        TokenRows rows = make_token_rows(setup_, layer, sequence, token_ids_to(lengths_[static_cast<size_t>(sequence)]),
                                         WINNOW_TYPE_F16);
        EXPECT_EQ(conformance::run(cache, function, rows), WINNOW_OK) << cache.message();
        return rows;
    }

    // The rows that both give.
    TokenRows rows_of_both(TokenRowsFunction function, int64_t layer, int64_t sequence) {
        TokenRows memory = rows(memory_, function, layer, sequence), file = rows(file_, function, layer, sequence);
        EXPECT_TRUE(bytes_of(memory.k) == bytes_of(file.k) && bytes_of(memory.v) == bytes_of(file.v))
            << "rows of layer " << layer << " of sequence " << sequence;
        return memory;
    }

    static void give(CacheHost& cache, TokenRowsFunction function, const TokenRows& rows) {
        TokenRows given{rows.layer, rows.sequence, rows.tokens, rows.k.packed_copy(), rows.v.packed_copy()};
        if (rows.tokens) given.tokens = rows.tokens.packed_copy();
        ASSERT_EQ(conformance::run(cache, function, given), WINNOW_OK) << cache.message();
    }

    void exchange(int64_t sequence) {
        if (lengths_[static_cast<size_t>(sequence)] == 0) return;
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            const TokenRows read = rows_of_both(memory_.caches().read, layer, sequence);
            for (CacheHost* cache : {&memory_, &file_})
                ASSERT_NO_FATAL_FAILURE(give(*cache, cache->caches().write, read));
        }
    }

    // What a function reads of a sequence is imported in the place of the other sequence.
    void move(int64_t sequence, TokenRowsFunction from) {
        const int64_t other = 1 - sequence;
        if (lengths_[static_cast<size_t>(sequence)] == 0) return;
        std::vector<TokenRows> read;
        const bool leaves_out = from == memory_.caches().read && draw(1, 2) == 1;
        const int64_t head = draw(0, setup_.shape(0).kv_heads - 1), length = lengths_[static_cast<size_t>(sequence)];
        const int64_t begin = draw(0, length - 1), end = std::min(begin + draw(1, 40), length);
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            read.push_back(rows_of_both(from, layer, sequence));
            read.back().sequence = other;
            read.back().tokens = TestTensor();
            for (int64_t token = begin; token < end && leaves_out; ++token) // the head does not hold them
                for (int64_t element = 0; element < setup_.shape(layer).head_size; ++element)
                    read.back().k.set({0, head % setup_.shape(layer).kv_heads, token, element}, std::nan(""));
        }
        put(other, read);
    }

    void put(int64_t sequence, const std::vector<TokenRows>& all) {
        both([&](CacheHost& cache) { return cache.caches().remove(cache.get(), sequence, 0, -1); });
        for (const TokenRows& rows : all)
            for (CacheHost* cache : {&memory_, &file_})
                ASSERT_NO_FATAL_FAILURE(give(*cache, cache->caches().import_rows, rows));
        lengths_[static_cast<size_t>(sequence)] = lengths_[static_cast<size_t>(1 - sequence)];
    }

    // Each loads what the other saved: the folder is no part of it.
    void save_and_load() {
        const TemporaryFolder folder;
        const std::string of_memory = folder.file("memory"), of_file = folder.file("file");
        ASSERT_EQ(save_state(memory_.caches(), memory_.get(), of_memory), WINNOW_OK) << memory_.message();
        ASSERT_EQ(save_state(file_.caches(), file_.get(), of_file), WINNOW_OK) << file_.message();
        uint64_t in_memory = 0, in_file = 0; // what saved_size knows without reading the cold tier
        ASSERT_EQ(memory_.caches().saved_size(memory_.get(), all_sequences, &in_memory), WINNOW_OK);
        ASSERT_EQ(file_.caches().saved_size(file_.get(), all_sequences, &in_file), WINNOW_OK);
        EXPECT_EQ(in_memory, std::filesystem::file_size(of_memory));
        EXPECT_EQ(in_file, std::filesystem::file_size(of_file));
        ASSERT_EQ(load_state(memory_.caches(), memory_.get(), of_file), WINNOW_OK) << memory_.message();
        ASSERT_EQ(load_state(file_.caches(), file_.get(), of_memory), WINNOW_OK) << file_.message();
    }

    CacheSetup setup_;
    std::mt19937_64 engine_;
    TemporaryFolder folder_;
    CacheHost memory_, file_;
    int64_t lengths_[2] = {0, 0};
};

// Of the refusal of a cache with this folder.
std::string refusal(const std::string& folder, int32_t expected) {
    const CacheSetup setup = in_folder(recall_setup(1, "1G"), folder);
    const std::string config = setup.config();
    const SetupDesc desc(setup, config);
    winnow_cache* cache = nullptr;
    EXPECT_EQ(subject().caches().create(subject().context(), desc.get(), &cache), expected) << folder;
    return subject().message();
}

void expect_folders_refused() {
    const TemporaryFolder folder;
    const std::string missing = folder.file("missing"), file = folder.file("file");
    std::ofstream(file) << "a file";
    EXPECT_NE(refusal(missing, WINNOW_ERROR_NOT_FOUND).find(missing), std::string::npos) << subject().message();
    EXPECT_NE(refusal(file, WINNOW_ERROR_INVALID_ARGUMENT).find("is not a folder"), std::string::npos)
        << subject().message();
    EXPECT_NE(refusal("hsot", WINNOW_ERROR_INVALID_ARGUMENT).find("expected one of off, host, or a folder"),
              std::string::npos)
        << subject().message();
    EXPECT_NE(refusal("/proc", WINNOW_ERROR_IO).find("/proc"), std::string::npos) << subject().message();
}

} // namespace

void register_cache_cold_file() {
    for (int shape = 0; shape < cache_shapes; ++shape)
        for (const char* budget : {"1G", "90000B"}) {
            CacheSetup setup = recall_setup(shape, budget);
            setup.sequences = 2;
            if (std::string(budget) != "1G") setup.head_size = setup.v_head_size = 64;
            if (shape == 3 && std::string(budget) != "1G") continue;
            // What is brought from the file when everything is picked is little else than its rows.
            if (shape % 2 == 1 && std::string(budget) == "1G" && options().pairs != Pairs::all) continue;
            register_cache_test("cold_file", std::string("as_in_memory_") + budget + "_" + shape_name(shape), __FILE__,
                                __LINE__, [=] { Twins(setup, options().seed + static_cast<uint64_t>(shape)).run(60); });
            if (std::string(budget) == "1G" || (shape % 2 == 0 && options().pairs != Pairs::all)) continue;
            setup.policy = Policy::window; // keeps the newest alone
            setup.budget = 220;
            register_cache_test("cold_file", std::string("newest_as_in_memory_") + budget + "_" + shape_name(shape),
                                __FILE__, __LINE__,
                                [=] { Twins(setup, options().seed + static_cast<uint64_t>(shape)).run(60); });
        }
    for (const int shape : {1, 4}) {
        CacheSetup unlike = with_unlike_layers(recall_setup(shape, "400000B"));
        unlike.sequences = 2;
        register_cache_test("cold_file", "as_in_memory_unlike_layers_" + shape_name(shape), __FILE__, __LINE__,
                            [=] { Twins(unlike, options().seed + 200).run(60); });
    }
    CacheSetup large = recall_setup_of_large_rows();
    large.sequences = 2;
    register_cache_test("cold_file", "as_in_memory_large_rows", __FILE__, __LINE__,
                        [=] { Twins(large, options().seed + 100).run(25); });
    CacheSetup anchored = recall_setup(1, "150000B");
    anchored.policy = Policy::window;
    anchored.budget = 512;
    anchored.context = 1024;
    anchored.sequences = 2;
    register_cache_test("cold_file", "full_of_anchors", __FILE__, __LINE__,
                        [=] { Twins(anchored, options().seed).run_full_of_anchors(455); });
    register_cache_test("cold_file", "folders_that_are_none", __FILE__, __LINE__, expect_folders_refused);
}

} // namespace winnow::conformance
