// What steps leave: which tokens are resident and where, how many eviction passes it took, and which queries count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "cache/cache.hpp"
#include "cache/plan/budget.hpp"
#include "cache_fake_device.hpp"
#include "device/network.hpp"

namespace winnow::cache {
namespace {

struct Fixture {
    explicit Fixture(const std::string& config, int64_t layers = 1, int64_t cells = 0, int64_t head_size = 2)
        : shape{layers, 2, head_size, head_size, 400}, cache(device, {config, shape.with_q_heads(4), 1, cells, {}}) {}

    void step(int64_t layer, int64_t tokens, bool appends = true, bool attends = true, int64_t draft_tokens = 0) {
        HostRows rows(2, tokens, shape.head_size), q(4, tokens, shape.head_size), out = q;
        CacheStep args;
        args.layer = layer;
        args.scale = 1;
        args.draft_tokens = draft_tokens;
        if (appends) args.k = args.v = rows.tensor();
        if (attends) {
            args.q = q.tensor();
            args.out = out.tensor();
        }
        device.clear();
        cache.step({&args, 1});
    }

    uint64_t passes() {
        winnow_cache_stats stats{};
        cache.stats(stats);
        return stats.eviction_passes;
    }

    FakeDevice device;
    AlikeLayers shape;
    Cache cache;
};

// The token ids of a head that lie in a segment.
std::vector<int32_t> in_segment(Cache& cache, int64_t head, int32_t segment) {
    const std::vector<int32_t> all = positions_of(cache, 0, 0, head), segments = segments_of(cache, 0, 0, head);
    std::vector<int32_t> found;
    for (size_t i = 0; i < all.size(); ++i)
        if (segments.at(i) == segment) found.push_back(all[i]);
    return found;
}

std::vector<int32_t> range(int32_t begin, int32_t end) {
    std::vector<int32_t> all;
    for (; begin < end; ++begin) all.push_back(begin);
    return all;
}

TEST(cache_schedule, a_prompt_is_taken_in_chunks) {
    Fixture f("h2o:k=f32,v=f32,budget=200"); // residual window 48, cadence 25
    f.step(0, 60);
    EXPECT_EQ(positions_of(f.cache, 0, 0, 1), range(0, 60)) << "the budget has room for all";
    EXPECT_EQ(f.passes(), 1u) << "before the third chunk, which does not fit into the residual window";
    // Of the 46 rows that are in the window then 23 stay; 10 come.
    EXPECT_EQ(in_segment(f.cache, 1, 1), range(4, 27));
    Fixture parts("h2o:k=f32,v=f32,budget=200");
    for (const int64_t tokens : {25, 25, 10}) parts.step(0, tokens);
    for (int64_t head = 0; head < 2; ++head) EXPECT_EQ(in_segment(parts.cache, head, 1), in_segment(f.cache, head, 1));
    EXPECT_EQ(parts.passes(), 1u);
}

// A prompt of 40 tokens in a cache with this many query heads whose memory is there for 2000 tokens.
struct Wide {
    explicit Wide(int64_t q_heads)
        : request{"h2o:k=f32,v=f32,budget=1000", AlikeLayers{1, 4, 2, 2, 2000, 0, q_heads}, 1, 0, {}},
          cache(device, request) {
        cache.reserve(0, 2000);
        HostRows rows(4, 40, 2), q(q_heads, 40, 2), out = q;
        CacheStep args;
        args.scale = 1;
        args.draft_tokens = 6;
        args.k = args.v = rows.tensor();
        args.q = q.tensor();
        args.out = out.tensor();
        device.clear();
        cache.step({&args, 1});
        cache.stats(stats);
    }

    FakeDevice device;
    CacheRequest request;
    Cache cache;
    winnow_cache_stats stats{};
};

TEST(cache_schedule, queries_whose_scores_find_no_room_attend_in_parts) {
    const uint64_t most = 4 << 20; // bytes of scores: of 1000 slots
    Wide few(32);                  // 4.1 million
    EXPECT_EQ(few.stats.scratch_bytes, 4 * 32 * 32 * 1000 + 8 * 32 * 32u);
    Wide more(40); // half of a chunk's queries at a time
    EXPECT_EQ(more.stats.scratch_bytes, most + 8 * 40 * 32);
    Wide many(400); // two of them
    EXPECT_EQ(many.stats.scratch_bytes, most + 8 * 400 * 32);
    Wide most_heads(1200); // those of one query are more
    EXPECT_GE(most_heads.stats.scratch_bytes, 4 * 1200 * 1000 + 8 * 1200 * 32u);
    for (const Wide* each : {&few, &more, &many, &most_heads}) {
        EXPECT_EQ(each->stats.bytes + each->stats.scratch_bytes, each->device.in_use);
        EXPECT_EQ(each->stats.scratch_bytes, estimate(each->request, 2000).scratch_bytes);
    }
}

// So that no step takes the time of several passes.
TEST(cache_schedule, layers_take_turns_in_decoding) {
    Fixture f("window:k=f32,v=f32,budget=200,cadence=16", 4);
    std::vector<std::vector<int64_t>> passes(4);
    int64_t last = -1;
    for (int64_t token = 0; token < 120; ++token)
        for (int64_t layer = 0; layer < 4; ++layer) {
            const uint64_t before = f.passes();
            f.step(layer, 1);
            if (f.passes() == before) continue;
            EXPECT_EQ(f.passes(), before + 1);
            EXPECT_NE(std::exchange(last, token), token) << "two layers have one in the same step";
            std::vector<int64_t>& its = passes[static_cast<size_t>(layer)];
            if (!its.empty()) {
                EXPECT_EQ(token - its.back(), 16) << "layer " << layer;
            }
            its.push_back(token);
        }
    for (const std::vector<int64_t>& each : passes) {
        EXPECT_GT(each.front(), 4 + 32) << "no row has to leave the residual window";
        EXPECT_LE(each.front(), 4 + 48) << "beside the sinks there are more rows than it has";
        EXPECT_EQ(each.size(), 5u);
    }
}

TEST(cache_schedule, without_a_residual_tokens_go_into_listed_slots) {
    Fixture f("h2o:k=f32,v=f32,budget=100,residual=0,cadence=8");
    f.step(0, 20);
    // 8 tokens, 4 of them sinks; 8, for which the 4 slots left do not suffice; 4, for which none is left.
    EXPECT_EQ(f.passes(), 3u);
    f.step(0, 4);
    EXPECT_EQ(f.passes(), 3u);
    f.step(0, 1);
    EXPECT_EQ(f.passes(), 4u);
    // What is taken back leaves its slots free-listed.
    f.step(0, 5);
    f.cache.truncate(0, 26);
    f.step(0, 6);
    EXPECT_EQ(f.passes(), 4u);
    f.cache.truncate(0, 20); // beyond the last eviction pass
    f.step(0, 1);
    EXPECT_EQ(f.passes(), 5u);
    EXPECT_EQ(positions_of(f.cache, 0, 0, 0), range(0, 21));
}

TEST(cache_schedule, a_length_without_tokens_stays) {
    for (const char* config : {"h2o:k=f32,v=f32,budget=100", "h2o:k=f32,v=f32,budget=100,residual=0,sink=0"}) {
        Fixture f(config);
        f.step(0, 10);
        f.cache.remove(0, 0, 6);
        f.cache.truncate(0, 6);
        EXPECT_TRUE(positions_of(f.cache, 0, 0, 0).empty());
        f.step(0, 2);
        EXPECT_EQ(positions_of(f.cache, 0, 0, 0), (std::vector<int32_t>{6, 7})) << config;
        f.cache.truncate(0, 0);
        winnow_cache_stats stats{};
        f.cache.stats(stats);
        EXPECT_EQ(stats.bytes, 0u);
        f.step(0, 1);
        EXPECT_EQ(positions_of(f.cache, 0, 0, 0), std::vector<int32_t>{0}) << config;
    }
}

TEST(cache_schedule, the_last_rows_of_a_context_stay_where_they_are) {
    Fixture f("none:k=f32,v=f32");
    for (int64_t token = 0; token < 400; ++token) f.step(0, 1, true, false);
    EXPECT_EQ(in_segment(f.cache, 0, 1), range(4, 400 - 48));
    EXPECT_THROW(f.step(0, 1), Error);
}

// All keys are alike, and so an output is the mean of the values that its query sees.
TEST(cache_schedule, the_last_tokens_attend_on_their_own) {
    Fixture f("h2o:k=f32,v=f32,budget=200");
    HostRows k(2, 60, 2), v = k, q(4, 40, 2), out = q;
    for (int64_t token = 0; token < 60; ++token)
        for (int64_t head = 0; head < 2; ++head) v.at(head, token, 0) = static_cast<float>(token);
    CacheStep args;
    args.k = k.tensor();
    args.v = v.tensor();
    f.cache.step({&args, 1});
    EXPECT_EQ(importance_of(f.cache, 0, 0, 0), std::vector<float>(60, 0)) << "nothing attended";
    args = {};
    args.scale = 1;
    args.q = q.tensor();
    args.out = out.tensor();
    f.cache.step({&args, 1});
    for (int64_t head = 0; head < 4; ++head)
        for (int64_t i = 0; i < 40; ++i)
            EXPECT_NEAR(out.at(head, i, 0), static_cast<float>(20 + i) / 2, 1e-4) << head << ", " << i;
    EXPECT_THROW(f.step(0, 61, false, true), Error);
}

// Where importances are sums of probabilities, those of a head are together as many as the queries that counted.
TEST(cache_schedule, drafts_do_not_count) {
    Fixture f("h2o:k=f32,v=f32,budget=200,statistic=probability,accumulation=sum,alpha=1");
    const auto counted = [&] {
        const std::vector<float> all = importance_of(f.cache, 0, 0, 1);
        return std::accumulate(all.begin(), all.end(), 0.0);
    };
    f.step(0, 60, true, true, 15); // more than come in the last chunk
    EXPECT_NEAR(counted(), 45, 1e-3);
    f.step(0, 3, true, true, 1);
    EXPECT_NEAR(counted(), 47, 1e-3);
    f.step(0, 1, true, true, 1);
    EXPECT_NEAR(counted(), 47, 1e-3);
}

TEST(cache_schedule, values_may_be_passed_over_in_every_step) {
    Fixture f("h2o:k=f32,v=f32,budget=200,sparse_v=1e-3");
    for (const int64_t tokens : {60, 1}) {
        f.step(0, tokens);
        for (const Sdpa& each : f.device.attentions) EXPECT_EQ(each.v_threshold, 1e-3f);
        EXPECT_FALSE(f.device.attentions.empty());
    }
}

// The state that it needs is as large as that of a policy without networks and with a longer list of free slots.
TEST(cache_schedule, networks_are_there_once_a_policy_has_them) {
    const AlikeLayers shape = {1, 2, 2, 2, 900, 0, 4};
    std::vector<float> network(2 * network_numbers);
    for (size_t i = 0; i < network.size(); ++i) network[i] = static_cast<float>(i) + 1;
    FakeDevice device;
    Cache cache(device, {"h2o:k=f32,v=f32,budget=300,residual=0,cadence=64", shape, 1, 0, {}, network});
    const auto append = [&](int64_t tokens) {
        HostRows rows(2, tokens, 2), q(4, tokens, 2), out = q;
        CacheStep args;
        args.scale = 1;
        args.k = args.v = rows.tensor();
        args.q = q.tensor();
        args.out = out.tensor();
        cache.step({&args, 1});
    };
    append(200);
    cache.set_config("learned:k=f32,v=f32,budget=300,residual=0,cadence=32");
    device.clear();
    append(200);
    ASSERT_FALSE(device.eviction_passes.empty());
    const Tensor& its = device.eviction_passes.back().network;
    std::vector<float> found(network.size());
    its.buffer->read(its.offset, found.data(), 4 * found.size());
    EXPECT_EQ(found, network);
    try {
        cache.set_config("learned:k=f32,v=f32,budget=300,residual=0,cadence=32,network_file=/other");
        ADD_FAILURE() << "other networks are taken without being there";
    } catch (const Error& error) {
        EXPECT_NE(std::string(error.what()).find("network_file"), std::string::npos) << error.what();
    }
}

TEST(cache_schedule, scores_are_told_by_position) {
    Fixture f("window:k=f32,v=f32,budget=60,residual=16"); // keeps no importance
    f.step(0, 100);
    EXPECT_FALSE(f.device.attentions[0].scores_out);
    HostRows k(2, 7, 2), q(4, 7, 2), out = q, scores(4, 7, 110);
    for (float& value : k.values) value = 1;
    for (float& value : q.values) value = 1;
    CacheStep args;
    args.scale = 1;
    args.k = args.v = k.tensor();
    args.q = q.tensor();
    args.out = out.tensor();
    args.scores_out = scores.tensor();
    f.cache.step({&args, 1});
    const std::vector<int32_t> resident = positions_of(f.cache, 0, 0, 1);
    for (int64_t i = 0; i < 7; ++i)
        for (int32_t position = 0; position < 110; ++position) {
            const bool is_held = std::find(resident.begin(), resident.end(), position) != resident.end();
            // The eviction pass of a query's chunk comes before it; tokens that were evicted later were still seen.
            if (position > 100 + i || position >= 107) {
                EXPECT_EQ(scores.at(3, i, position), -INFINITY) << position;
            } else if (is_held) {
                EXPECT_EQ(scores.at(3, i, position), position < 100 ? 0 : 2) << position;
            }
        }
    HostRows narrow(4, 7, 113);
    args.scores_out = narrow.tensor();
    EXPECT_THROW(f.cache.step({&args, 1}), Error); // 114 tokens then
}

TEST(cache_schedule, anchors_are_marked_when_they_come_and_where_they_are) {
    Fixture f("window:k=f32,v=f32,budget=60,residual=16,cadence=5");
    f.step(0, 30);
    f.cache.anchor(0, std::vector<int64_t>{10, 200, 201});
    for (int i = 0; i < 18; ++i) f.step(0, 20);
    const std::vector<int32_t> resident = positions_of(f.cache, 0, 0, 0);
    for (const int32_t anchor : {10, 200, 201})
        EXPECT_NE(std::find(resident.begin(), resident.end(), anchor), resident.end());
    // 4 sinks, 11 newest, 5 to come: 40 anchors are all that fits.
    std::vector<int64_t> many;
    for (int64_t i = 0; i < 38; ++i) many.push_back(20 + i);
    try {
        f.cache.anchor(0, many);
        FAIL();
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(), "sequence 0 would have 41 anchors, expected at most 40 beside sinks, newest and "
                                   "coming tokens in the 60 tokens of layer 0");
    }
    many.pop_back();
    f.cache.anchor(0, many);
    EXPECT_THROW(f.cache.anchor(0, std::vector<int64_t>{400}), Error);
    EXPECT_THROW(f.cache.set_config("window:k=f32,v=f32,budget=50,residual=16,cadence=5"), Error);
}

std::vector<int64_t> token_ids(int32_t begin, int32_t end) {
    const std::vector<int32_t> all = range(begin, end);
    return {all.begin(), all.end()};
}

TEST(cache_schedule, shifts_leave_room_for_tokens_that_become_sinks) {
    for (const int32_t anchors : {24, 28}) { // 4 sinks and 8 to come: 28 are all that fits
        Fixture f("window:k=f32,v=f32,budget=40,residual=0,cadence=8");
        f.step(0, 32);
        f.cache.anchor(0, token_ids(8, 8 + anchors));
        f.cache.remove(0, 0, 4);
        const std::vector<int32_t> before = positions_of(f.cache, 0, 0, 0);
        if (anchors == 28) { // the first of the packed segment would be sinks, and the sinks' slots empty
            EXPECT_THROW(f.cache.shift(0, 4, -1, -4), Error);
            EXPECT_EQ(positions_of(f.cache, 0, 0, 0), before);
            continue;
        }
        f.cache.shift(0, 4, -1, -4);
        EXPECT_THROW(f.cache.anchor(0, token_ids(100, 101)), Error);
        EXPECT_THROW(f.cache.set_config("window:k=f32,v=f32,budget=39,residual=0,cadence=8"), Error);
        for (int i = 0; i < 60; ++i) f.step(0, 1);
        const std::vector<int32_t> resident = positions_of(f.cache, 0, 0, 0);
        for (const int32_t each : {0, 3, 4, 27, 87})
            EXPECT_EQ(std::count(resident.begin(), resident.end(), each), 1) << each;
    }
}

TEST(cache_schedule, shifts_leave_room_for_tokens_that_become_the_newest) {
    Fixture f("h2o:k=f32,v=f32,budget=60,residual=20,cadence=12"); // 14 newest are protected
    f.step(0, 40);
    f.cache.anchor(0, token_ids(4, 34)); // all that fits
    while (f.device.eviction_passes.empty() || positions_of(f.cache, 0, 0, 0).size() < 49) f.step(0, 1);
    for (int i = 0; i < 11; ++i) f.step(0, 1);
    const std::vector<int32_t> resident = positions_of(f.cache, 0, 0, 0);
    ASSERT_EQ(resident.size(), 60u);
    const int64_t next = resident.back() + 1;
    f.cache.remove(0, next - 8, next); // what an eviction pass would leave in the residual window
    // Tokens of the packed segment come into their places, which leaves the packed segment too little.
    EXPECT_THROW(f.cache.shift(0, resident[34], resident[34] + 1, next - 8 - resident[34]), Error);
    for (int i = 0; i < 30; ++i) f.step(0, 1);
}

TEST(cache_schedule, cells_are_told_apart_from_positions) {
    Fixture f("h2o:k=f32,v=f32,budget=60,residual=16", 1, 80);
    const auto append = [&](std::vector<int32_t> cells) {
        const auto tokens = static_cast<int64_t>(cells.size());
        HostRows rows(2, tokens, 2);
        CacheStep args;
        args.k = args.v = rows.tensor();
        args.cells.type = Type::i32;
        args.cells.data = reinterpret_cast<std::byte*>(cells.data());
        args.cells.shape = {1, 1, 1, tokens};
        args.cells.stride = {4 * tokens, 4 * tokens, 4 * tokens, 4};
        f.device.clear();
        f.cache.step({&args, 1});
    };
    append({70, 71, 72, 73, 74, 10, 11});
    EXPECT_EQ(positions_of(f.cache, 0, 0, 0), (std::vector<int32_t>{10, 11, 70, 71, 72, 73, 74}));
    append({71, 12, 74}); // two of which had tokens
    EXPECT_EQ(positions_of(f.cache, 0, 0, 0), (std::vector<int32_t>{10, 11, 12, 70, 71, 72, 73, 74}));
    EXPECT_THROW(append({3, 3}), Error);
    EXPECT_THROW(append({80}), Error);
    EXPECT_THROW(append({-1}), Error);
    EXPECT_THROW(f.cache.truncate(0, 2), Error);
    EXPECT_THROW(f.cache.shift(0, 2, 3, 1), Error);
    f.cache.remove(0, 70, 75);
    EXPECT_EQ(positions_of(f.cache, 0, 0, 0), (std::vector<int32_t>{10, 11, 12}));
    winnow_cache_stats stats{};
    f.cache.stats(stats);
    EXPECT_EQ(stats.tokens, 3u);
}

// As a host keeps the tokens of a sliding window: each gets the cell of one that the window has left.
TEST(cache_schedule, cells_that_are_used_again_take_no_more_memory_and_no_more_passes) {
    Fixture f("none:k=f32,v=f32", 1, 400);
    constexpr int64_t tokens = 3000, window = 100;
    for (int64_t t = 0; t < tokens; ++t) {
        int32_t cell = static_cast<int32_t>(t % window);
        HostRows rows(2, 1, 2);
        CacheStep args;
        args.k = args.v = rows.tensor();
        args.cells.type = Type::i32;
        args.cells.data = reinterpret_cast<std::byte*>(&cell);
        args.cells.shape = {1, 1, 1, 1};
        args.cells.stride = {4, 4, 4, 4};
        f.cache.step({&args, 1});
    }
    winnow_cache_stats stats{};
    f.cache.stats(stats);
    EXPECT_EQ(stats.resident_slots, 2u * window);
    EXPECT_LE(stats.k_bytes, 2u * 2 * 4 * 2 * window); // room for twice as many
    EXPECT_LE(stats.eviction_passes, tokens / 32 + window);
}

TEST(cache_schedule, means_are_taken_once_and_from_a_residual) {
    Fixture f("window:k=f32,v=f32,budget=200,center=on");
    f.step(0, 200);
    ASSERT_GT(f.device.eviction_passes.size(), 1u);
    EXPECT_TRUE(f.device.eviction_passes[0].set_means);
    EXPECT_TRUE(f.device.eviction_passes[0].packed.k_mean);
    EXPECT_FALSE(f.device.eviction_passes[0].dense.k_mean);
    EXPECT_FALSE(f.device.eviction_passes[1].set_means);
    f.cache.remove(0, 0, -1);
    f.step(0, 60);
    EXPECT_TRUE(f.device.eviction_passes.at(0).set_means);
    EXPECT_THROW(Fixture("window:k=f32,v=f32,budget=200,center=on,residual=0"), Error);
}

// A head of wide elements beside one of packed rows, of which an odd number takes an odd number of halves.
TEST(cache_schedule, rows_of_unlike_heads_begin_where_their_elements_may) {
    Fixture f("window:budget=57,sink=2,residual=8,cadence=7,k=turbo4,v=turbo3,fine=0.1,k_fine=f32,v_fine=f32", 1, 0,
              16);
    int64_t checked = 0;
    for (int step = 0; step < 90; ++step) {
        f.step(0, 1);
        for (const Sdpa& attention : f.device.attentions)
            for (const Segment& segment : attention.segments)
                for (const Tensor* side : {&segment.k, &segment.v}) {
                    EXPECT_EQ(side->offset % alignment(side->type), 0u) << step;
                    checked += side->type == Type::f32 && segment.slots() % 2 == 1;
                }
    }
    EXPECT_GT(checked, 0);
}

} // namespace
} // namespace winnow::cache
