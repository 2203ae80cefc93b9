// Exact rows over a table of configurations: what is exported and imported into an empty cache has the same tokens in
// the same heads, with the same rows and importance, or the export is refused and has touched nothing.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <set>

#include "cache/cache.hpp"
#include "cache/layer/layer.hpp"
#include "cache_fake_device.hpp"

namespace winnow::cache {
namespace {

constexpr int64_t context = 96;
constexpr uint16_t untouched = 0x1234;

struct Case {
    std::string config;
    int64_t heads = 2, head_size = 64, v_head_size = 64, tokens = 60;
    bool has_v_in_k = false; // values are the last elements of the keys
    Type host = Type::f16;
    int64_t layers = 1;

    std::string name() const {
        return config + ", " + std::to_string(heads) + " heads of " + std::to_string(head_size) + " and " +
               std::to_string(v_head_size) + (has_v_in_k ? " in the keys" : "") + ", " + std::to_string(tokens) +
               " tokens in " + type_name(host);
    }
};

CacheRequest request_of(const Case& its) {
    return {its.config,
            AlikeLayers{its.layers, its.heads, its.head_size, its.v_head_size, context, 0, 2 * its.heads},
            1,
            0,
            {}};
}

void feed(Cache& cache, const Case& its, int64_t layer = 0) {
    std::mt19937 engine(1);
    std::normal_distribution<float> draw;
    for (int64_t seen = 0, count = 0; seen < its.tokens; seen += count) {
        count = seen == 0 ? (its.tokens + 1) / 2 : 1; // a prompt, then a token a step
        HostRows k(its.heads, count, its.head_size), v(its.heads, count, its.v_head_size),
            q(2 * its.heads, count, its.head_size), out(2 * its.heads, count, its.v_head_size);
        for (HostRows* each : {&k, &v, &q})
            for (float& value : each->values) value = draw(engine);
        const int64_t first = its.head_size - its.v_head_size;
        for (int64_t head = 0; its.has_v_in_k && head < its.heads; ++head)
            for (int64_t token = 0; token < count; ++token)
                for (int64_t d = 0; d < its.v_head_size; ++d) v.at(head, token, d) = k.at(head, token, first + d);
        CacheStep step;
        step.layer = layer;
        step.scale = .125F;
        step.k = k.tensor();
        step.v = v.tensor();
        step.q = q.tensor();
        step.out = out.tensor();
        cache.step({&step, 1});
    }
}

// Rows of 16-bit elements.
struct Host {
    Host(const Case& its, int64_t size, int64_t tokens)
        : values(static_cast<size_t>(its.heads * tokens * size), untouched) {
        tensor = tensor_of(its.host, its.heads, tokens, size);
        tensor.stride = {its.heads * tokens * size * 2, tokens * size * 2, size * 2, 2};
        tensor.data = reinterpret_cast<std::byte*>(values.data());
    }
    std::vector<uint16_t> values;
    Tensor tensor;
};

std::vector<int32_t> ids_to(int64_t count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i);
    return ids;
}

// What each head holds: tokens, importance, and rows as attention sees them.
std::string contents(Cache& cache, const Case& its) {
    std::string bytes;
    const auto add = [&](const auto& values) {
        bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof values[0]);
    };
    for (int64_t head = 0; head < its.heads; ++head) {
        add(positions_of(cache, 0, 0, head));
        if (meaning_of(request_of(its)).keeps_importance) add(importance_of(cache, 0, 0, head));
    }
    std::vector<int32_t> ids = ids_to(its.tokens);
    HostRows k(its.heads, its.tokens, its.head_size), v(its.heads, its.tokens, its.v_head_size);
    CacheRows rows;
    rows.tokens = tensor_of(Type::i32, 1, 1, its.tokens);
    rows.tokens.data = reinterpret_cast<std::byte*>(ids.data());
    rows.k = k.tensor();
    rows.v = v.tensor();
    cache.read(rows);
    for (HostRows* each : {&k, &v}) {
        for (float& value : each->values)
            if (value != value) value = 1e30F; // whatever NaN it is
        add(each->values);
    }
    return bytes;
}

CacheRows rows_of(const Case& its, const Host& k, const Host& v, std::vector<int32_t>& ids) {
    CacheRows rows;
    rows.k = k.tensor;
    if (!its.has_v_in_k) rows.v = v.tensor;
    rows.has_v_in_k = its.has_v_in_k;
    rows.v_first = its.has_v_in_k ? its.head_size - its.v_head_size : 0;
    rows.tokens = tensor_of(Type::i32, 1, 1, its.tokens);
    rows.tokens.data = reinterpret_cast<std::byte*>(ids.data());
    return rows;
}

// Why the export was refused; "" where what came back is the same.
std::string outcome(const Case& its) {
    FakeDevice device, other;
    device.heads_differ = other.heads_differ = true;
    Cache source(device, request_of(its)), target(other, request_of(its));
    feed(source, its);
    const std::string before = contents(source, its);
    Host k(its, its.head_size, its.tokens), v(its, its.v_head_size, its.tokens);
    std::vector<int32_t> ids = ids_to(its.tokens);
    CacheRows rows = rows_of(its, k, v, ids);
    try {
        source.export_rows(rows);
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED) << its.name() << ": " << error.what();
        EXPECT_EQ(std::set<uint16_t>(k.values.begin(), k.values.end()).size(), 1U) << its.name();
        EXPECT_EQ(std::set<uint16_t>(v.values.begin(), v.values.end()).size(), 1U) << its.name();
        EXPECT_TRUE(contents(source, its) == before) << its.name();
        return error.what();
    }
    EXPECT_TRUE(contents(source, its) == before) << its.name() << ": the source has changed";
    rows.tokens = {};
    target.import_rows(rows);
    EXPECT_TRUE(contents(target, its) == before) << its.name() << ": what came back differs";
    return "";
}

constexpr const char* formats[] = {"f32",          "f16",    "bf16",   "q8_0",        "q5_1",        "q5_0",
                                   "q4_1",         "q4_0",   "iq4_nl", "affine8_g32", "affine8_g64", "affine4_g32",
                                   "affine4_g128", "turbo4", "turbo3", "turbo2_5",    "sparse16",    "sparse8"};
constexpr const char* policies[] = {"none:residual=16",
                                    "window:budget=24,residual=0,cadence=4",
                                    "h2o:budget=24,residual=8,cadence=4",
                                    "h2o:residual=16,budget=80",
                                    "winnow:budget=28,residual=8,cadence=4",
                                    "tova:budget=30,residual=0,cadence=3",
                                    "scissorhands:budget=32,residual=8,cadence=4,center=on",
                                    "h2o:budget=40,share2=1/3,residual=8,cadence=4"};

std::vector<Case> cases() {
    std::vector<Case> all;
    size_t turn = 0;
    for (const std::string policy : policies)
        for (const std::string k : formats)
            for (const char* elastic : {"", ",elastic=sweet", ",elastic=aggressive"}) {
                const std::string v = formats[++turn % std::size(formats)];
                if (elastic[0] != 0 && policy.find("residual=0") != std::string::npos) continue;
                Case its;
                its.config = policy + ",k=" + k + ",v=" + (turn % 3 == 0 ? v : k);
                if (policy.find("share2") != std::string::npos) its.config += ",k2=q4_0,v2=q4_0";
                if (elastic[0] != 0) its.config += std::string(elastic) + ",zero_after=8,zero_every=4,zero_sink=2";
                its.heads = 1 + static_cast<int64_t>(turn % 3);
                its.head_size = its.v_head_size = turn % 8 == 0 ? 256 : turn % 2 == 0 ? 64 : 128;
                if (turn % 7 == 0) its.has_v_in_k = true, its.v_head_size = its.head_size / 2;
                its.tokens = turn % 5 == 0 ? 6 : turn % 5 == 1 ? 30 : 50;
                all.push_back(its);
                if (turn % 4 > 0 && k != "bf16") continue;
                its.host = Type::bf16;
                all.push_back(its);
            }
    return all;
}

// Whether a 16-bit type holds the rows that the cache keeps dense, or in a format that is not packed.
bool has_type_of_rows(const Case& its) {
    const Config config = parse(its.config);
    for (const Type type : {config.k(), config.v()})
        if (dense_format(type) != its.host) return false;
    const bool is_packed_twice = is_packed(config.k()) && is_packed(config.v());
    return is_packed_twice || (!config.center() && !its.has_v_in_k);
}

TEST(cache_exports, bring_survivors_rows_and_importance_or_are_refused) {
    int refused = 0, kept = 0, skipped = 0;
    for (const Case& its : cases()) {
        try {
            meaning_of(request_of(its));
        } catch (const Error&) { // a format or a policy that such heads cannot have
            ++skipped;
            continue;
        }
        const std::string why = outcome(its);
        if (why.empty())
            ++kept;
        else
            ++refused;
        if (has_type_of_rows(its) && its.tokens > 6 && !its.has_v_in_k) {
            EXPECT_EQ(why, "") << its.name() << " is refused";
        }
        if (its.config.find("f32") != std::string::npos) {
            EXPECT_NE(why, "") << its.name() << " is not refused";
        }
    }
    EXPECT_GT(kept, 250) << refused << " refused, " << skipped << " skipped";
    EXPECT_GT(refused, 80) << kept << " kept, " << skipped << " skipped";
}

// The layer has its memory and its counts still, since another one has a token more.
TEST(cache_exports, rows_come_into_a_layer_whose_tokens_were_evicted_and_removed) {
    Case its{.config = "window:budget=24,residual=8,cadence=4", .tokens = 60, .layers = 2}, longer = its;
    longer.tokens = 61;
    FakeDevice device, other;
    device.heads_differ = other.heads_differ = true;
    Cache target(device, request_of(its)), source(other, request_of(its));
    feed(target, its, 0);
    feed(target, longer, 1);
    target.remove(0, 0, its.tokens);
    target.shift(0, its.tokens, -1, -its.tokens);
    ASSERT_EQ(target.next_position(0, 0), 0);
    winnow_cache_stats before{}, after{};
    target.stats(before);
    ASSERT_GT(before.evictions, 0U);

    its.tokens = 20;
    feed(source, its);
    Host k(its, its.head_size, its.tokens), v(its, its.v_head_size, its.tokens);
    std::vector<int32_t> ids = ids_to(its.tokens);
    CacheRows rows = rows_of(its, k, v, ids);
    source.export_rows(rows);
    rows.tokens = {};
    target.import_rows(rows);
    EXPECT_TRUE(contents(target, its) == contents(source, its));
    target.stats(after);
    EXPECT_EQ(after.evictions, before.evictions);
}

} // namespace
} // namespace winnow::cache
