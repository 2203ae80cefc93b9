// Which operations a step is made of: chunks, places, eviction passes and which queries count.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "cache/plan/budget.hpp"
#include "cache/cache.hpp"
#include "cache_fake_device.hpp"

namespace winnow::cache {
namespace {

struct Fixture {
    explicit Fixture(const std::string& config, int64_t layers = 1, int64_t cells = 0, int64_t head_size = 2)
        : shape{layers, 2, head_size, head_size, 400}, cache(device, {config, shape, 4, 1, cells, {}}) {}

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
        cache.step(args);
    }

    FakeDevice device;
    Shape shape;
    Cache cache;
};

std::string joined(const std::vector<std::string>& log) {
    std::string text;
    for (const std::string& each : log) text += (text.empty() ? "" : " ") + each;
    return text;
}

// Where appends put their tokens: "first..last@slot" for each.
std::string places(const FakeDevice& device) {
    std::string text;
    for (const SlotAppend& append : device.appends) {
        if (!text.empty()) text += ' ';
        text += std::to_string(append.token_id) + "+" + std::to_string(append.k.shape[2]) + "@" +
                std::to_string(append.first + append.offset) + "/" + std::to_string(append.count);
    }
    return text;
}

TEST(cache_schedule, a_prompt_is_taken_in_chunks) {
    Fixture f("h2o:k=f32,v=f32,budget=200"); // residual window 48, cadence 25
    f.step(0, 60);
    EXPECT_EQ(joined(f.device.log), "append append attention accumulate append attention accumulate evict append "
                                    "attention accumulate");
    EXPECT_EQ(places(f.device), "0+4@0/4 4+21@4/48 25+25@25/48 50+10@50/48");
    ASSERT_EQ(f.device.attentions.size(), 3u);
    EXPECT_EQ(f.device.attentions[0].sdpa.q_offset, 0);
    EXPECT_EQ(f.device.attentions[1].sdpa.q_offset, 25);
    EXPECT_EQ(f.device.attentions[2].sdpa.q_offset, 50);
    EXPECT_TRUE(f.device.attentions[0].sdpa.is_causal);
    EXPECT_EQ(f.device.attentions[2].sdpa.q_len(), 10);
    ASSERT_EQ(f.device.eviction_passes.size(), 1u); // 46 residual rows, of which 23 stay
    EXPECT_EQ(f.device.eviction_passes[0].leaving_offset, 0);
    EXPECT_EQ(f.device.eviction_passes[0].leaving_count, 46 - (48 - 25));
    EXPECT_EQ(f.device.eviction_passes[0].seen, 50);
    EXPECT_EQ(f.device.eviction_passes[0].incoming, 25);
    EXPECT_EQ(f.device.eviction_passes[0].residual_first, 4);
    EXPECT_EQ(f.device.eviction_passes[0].residual_count, 48);
    EXPECT_EQ(f.device.eviction_passes[0].outputs, 0); // its ranking needs none
}

// A prompt of 40 tokens in a cache with this many query heads whose memory is there for 2000 tokens.
struct Wide {
    explicit Wide(int64_t q_heads)
        : request{"h2o:k=f32,v=f32,budget=1000", {1, 4, 2, 2, 2000}, q_heads, 1, 0, {}}, cache(device, request) {
        cache.reserve(0, 2000);
        HostRows rows(4, 40, 2), q(q_heads, 40, 2), out = q;
        CacheStep args;
        args.scale = 1;
        args.draft_tokens = 6;
        args.k = args.v = rows.tensor();
        args.q = q.tensor();
        args.out = out.tensor();
        device.clear();
        cache.step(args);
        cache.stats(stats);
    }

    // "offset+queries/counted" of each attention whose queries count.
    std::string parts() const {
        std::string text;
        for (size_t i = 0; i < device.accumulations.size(); ++i)
            text += (text.empty() ? "" : " ") + std::to_string(device.attentions[i].sdpa.q_offset) + "+" +
                    std::to_string(device.attentions[i].sdpa.q_len()) + "/" +
                    std::to_string(device.accumulations[i].counted_queries);
        return text;
    }

    FakeDevice device;
    CacheRequest request;
    Cache cache;
    winnow_cache_stats stats{};
};

TEST(cache_schedule, queries_whose_scores_find_no_room_attend_in_parts) {
    const uint64_t most = 4 << 20; // bytes of scores: of 1000 slots
    Wide few(32);                  // 4.1 million
    EXPECT_EQ(few.parts(), "0+32/32 32+8/2");
    EXPECT_EQ(few.stats.scratch_bytes, 4 * 32 * 32 * 1000 + 8 * 32 * 32u);
    Wide more(40); // 16 at a time; the rest of 8 is not divided
    EXPECT_EQ(joined(more.device.log), "append append attention accumulate attention accumulate append attention "
                                       "accumulate");
    EXPECT_EQ(more.parts(), "0+16/16 16+16/16 32+8/2");
    EXPECT_EQ(more.stats.scratch_bytes, most + 8 * 40 * 32);
    Wide many(400); // 2 at a time, so that the last attention whose queries count ends where the drafts begin
    EXPECT_EQ(many.device.attentions.size(), 20u);
    EXPECT_EQ(many.device.accumulations.size(), 17u);
    EXPECT_EQ(many.device.attentions.back().sdpa.q_offset, 38);
    EXPECT_EQ(many.stats.scratch_bytes, most + 8 * 400 * 32);
    Wide most_heads(1200); // those of one query are more: a step of one token each
    EXPECT_EQ(most_heads.device.attentions.size(), 40u);
    EXPECT_EQ(most_heads.device.accumulations.size(), 34u);
    EXPECT_GE(most_heads.stats.scratch_bytes, 4 * 1200 * 1000 + 8 * 1200 * 32u);
    for (const Wide* each : {&few, &more, &many, &most_heads}) {
        EXPECT_EQ(each->stats.bytes + each->stats.scratch_bytes, each->device.in_use);
        EXPECT_EQ(each->stats.scratch_bytes, estimate(each->request, 2000).scratch_bytes);
    }
}

TEST(cache_schedule, layers_take_turns_in_decoding) {
    Fixture f("window:k=f32,v=f32,budget=200,cadence=16", 4);
    std::vector<std::vector<int64_t>> passes(4);
    for (int64_t token = 0; token < 120; ++token)
        for (int64_t layer = 0; layer < 4; ++layer) {
            f.step(layer, 1);
            for (const SlotEvict& pass : f.device.eviction_passes) {
                passes[static_cast<size_t>(layer)].push_back(token);
                EXPECT_GT(pass.leaving_count, 0);
            }
        }
    // The residual window keeps 32 of 48; turns come at layer * 16 / 4 of each 16.
    EXPECT_EQ(passes[0], (std::vector<int64_t>{48, 64, 80, 96, 112}));
    EXPECT_EQ(passes[1], (std::vector<int64_t>{52, 68, 84, 100, 116}));
    EXPECT_EQ(passes[2], (std::vector<int64_t>{40, 56, 72, 88, 104}));
    EXPECT_EQ(passes[3], (std::vector<int64_t>{44, 60, 76, 92, 108}));
}

TEST(cache_schedule, without_a_residual_tokens_go_into_listed_slots) {
    Fixture f("h2o:k=f32,v=f32,budget=100,residual=0,cadence=8");
    f.step(0, 20);
    // 8 tokens, 4 of them sinks; 8, for which the 4 slots left do not suffice; 4, for which none is left.
    EXPECT_EQ(joined(f.device.log), "evict append append attention accumulate evict append attention accumulate "
                                    "evict append attention accumulate");
    EXPECT_EQ(f.device.eviction_passes[0].incoming, 8);
    EXPECT_EQ(f.device.eviction_passes[0].leaving_count, 0);
    f.step(0, 4);
    EXPECT_TRUE(f.device.eviction_passes.empty());
    f.step(0, 1);
    EXPECT_EQ(f.device.eviction_passes.size(), 1u);
    // What is taken back leaves its slots free-listed.
    f.step(0, 5);
    f.cache.truncate(0, 26);
    f.step(0, 6);
    EXPECT_TRUE(f.device.eviction_passes.empty());
    f.cache.truncate(0, 20); // beyond the last eviction pass
    f.step(0, 1);
    EXPECT_EQ(f.device.eviction_passes.size(), 1u);
}

TEST(cache_schedule, a_length_without_tokens_stays) {
    for (const char* config : {"h2o:k=f32,v=f32,budget=100", "h2o:k=f32,v=f32,budget=100,residual=0,sink=0"}) {
        Fixture f(config);
        f.step(0, 10);
        f.cache.remove(0, 0, 6);
        f.cache.truncate(0, 6);
        EXPECT_TRUE(f.cache.positions(0, 0, 0).empty());
        f.step(0, 2);
        EXPECT_EQ(f.cache.positions(0, 0, 0), (std::vector<int32_t>{6, 7})) << config;
        f.cache.truncate(0, 0);
        winnow_cache_stats stats{};
        f.cache.stats(stats);
        EXPECT_EQ(stats.bytes, 0u);
        f.step(0, 1);
        EXPECT_EQ(f.cache.positions(0, 0, 0), std::vector<int32_t>{0}) << config;
    }
}

TEST(cache_schedule, the_last_rows_of_a_context_stay_where_they_are) {
    Fixture f("none:k=f32,v=f32");
    int64_t moved = 0;
    for (int64_t token = 0; token < 400; ++token) {
        f.step(0, 1, true, false);
        for (const SlotEvict& pass : f.device.eviction_passes) moved += pass.leaving_count;
    }
    EXPECT_EQ(moved, 400 - 4 - 48);
    EXPECT_THROW(f.step(0, 1), Error);
}

TEST(cache_schedule, the_last_tokens_attend_on_their_own) {
    Fixture f("h2o:k=f32,v=f32,budget=200");
    f.step(0, 60, true, false);
    EXPECT_TRUE(f.device.attentions.empty());
    EXPECT_TRUE(f.device.accumulations.empty());
    f.step(0, 40, false, true);
    ASSERT_EQ(f.device.attentions.size(), 2u);
    EXPECT_EQ(f.device.attentions[0].sdpa.q_offset, 20);
    EXPECT_EQ(f.device.attentions[1].sdpa.q_offset, 45);
    EXPECT_THROW(f.step(0, 61, false, true), Error);
}

TEST(cache_schedule, drafts_do_not_count) {
    Fixture f("h2o:k=f32,v=f32,budget=200");
    f.step(0, 60, true, true, 15);
    ASSERT_EQ(f.device.accumulations.size(), 2u); // the last chunk has 10 tokens, all of them drafts
    EXPECT_EQ(f.device.accumulations[0].counted_queries, 25);
    EXPECT_EQ(f.device.accumulations[1].counted_queries, 20);
    EXPECT_FALSE(f.device.attentions[2].sdpa.scores_out);
    f.step(0, 3, true, true, 1);
    EXPECT_EQ(f.device.accumulations.at(0).counted_queries, 2);
    EXPECT_FALSE(f.device.accumulations.at(0).output_sum);
    Fixture distance("winnow:k=f32,v=f32,budget=100,residual=16");
    distance.step(0, 12);
    distance.step(0, 1, true, true, 1);
    distance.step(0, 3);
    EXPECT_TRUE(distance.device.accumulations.at(0).output_sum);
    for (int i = 0; i < 20 && distance.device.eviction_passes.empty(); ++i) distance.step(0, 1);
    EXPECT_EQ(distance.device.eviction_passes.at(0).outputs % 2, 0); // rows of two heads for each query that counts
    EXPECT_GT(distance.device.eviction_passes.at(0).outputs, 2 * 15);
}

TEST(cache_schedule, values_may_be_passed_over_in_every_step) {
    Fixture f("h2o:k=f32,v=f32,budget=200,sparse_v=1e-3");
    for (const int64_t tokens : {60, 1}) {
        f.step(0, tokens);
        for (const SlotAttention& each : f.device.attentions) EXPECT_EQ(each.sdpa.v_threshold, 1e-3f);
        EXPECT_FALSE(f.device.attentions.empty());
    }
}

// The state that it needs is as large as that of a policy without networks and with a longer list of free slots.
TEST(cache_schedule, networks_are_there_once_a_policy_has_them) {
    const Shape shape = {1, 2, 2, 2, 900};
    std::vector<float> network(network_size(shape));
    for (size_t i = 0; i < network.size(); ++i) network[i] = static_cast<float>(i) + 1;
    FakeDevice device;
    Cache cache(device, {"h2o:k=f32,v=f32,budget=300,residual=0,cadence=64", shape, 4, 1, 0, {}, network});
    const auto append = [&](int64_t tokens) {
        HostRows rows(2, tokens, 2), q(4, tokens, 2), out = q;
        CacheStep args;
        args.scale = 1;
        args.k = args.v = rows.tensor();
        args.q = q.tensor();
        args.out = out.tensor();
        cache.step(args);
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
    EXPECT_FALSE(f.device.attentions[0].sdpa.scores_out);
    HostRows k(2, 7, 2), q(4, 7, 2), out = q, scores(4, 7, 110);
    for (float& value : k.values) value = 1;
    for (float& value : q.values) value = 1;
    CacheStep args;
    args.scale = 1;
    args.k = args.v = k.tensor();
    args.q = q.tensor();
    args.out = out.tensor();
    args.scores_out = scores.tensor();
    f.cache.step(args);
    const std::vector<int32_t> resident = f.cache.positions(0, 0, 1);
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
    EXPECT_THROW(f.cache.step(args), Error); // 114 tokens then
}

TEST(cache_schedule, anchors_are_marked_when_they_come_and_where_they_are) {
    Fixture f("window:k=f32,v=f32,budget=60,residual=16,cadence=5");
    f.step(0, 30);
    f.cache.anchor(0, std::vector<int64_t>{10, 200, 201});
    for (int i = 0; i < 18; ++i) f.step(0, 20);
    const std::vector<int32_t> resident = f.cache.positions(0, 0, 0);
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

std::vector<int64_t> token_ids(int64_t begin, int64_t end) {
    std::vector<int64_t> all;
    for (; begin < end; ++begin) all.push_back(begin);
    return all;
}

TEST(cache_schedule, shifts_leave_room_for_tokens_that_become_sinks) {
    for (const int64_t anchors : {24, 28}) { // 4 sinks and 8 to come: 28 are all that fits
        Fixture f("window:k=f32,v=f32,budget=40,residual=0,cadence=8");
        f.step(0, 32);
        f.cache.anchor(0, token_ids(8, 8 + anchors));
        f.cache.remove(0, 0, 4);
        const std::vector<int32_t> before = f.cache.positions(0, 0, 0);
        if (anchors == 28) { // the first of the packed segment would be sinks, and the sinks' slots empty
            EXPECT_THROW(f.cache.shift(0, 4, -1, -4), Error);
            EXPECT_EQ(f.cache.positions(0, 0, 0), before);
            continue;
        }
        f.cache.shift(0, 4, -1, -4);
        EXPECT_THROW(f.cache.anchor(0, token_ids(100, 101)), Error);
        EXPECT_THROW(f.cache.set_config("window:k=f32,v=f32,budget=39,residual=0,cadence=8"), Error);
        for (int i = 0; i < 60; ++i) f.step(0, 1);
        const std::vector<int32_t> resident = f.cache.positions(0, 0, 0);
        for (const int32_t each : {0, 3, 4, 27, 87})
            EXPECT_EQ(std::count(resident.begin(), resident.end(), each), 1) << each;
    }
}

TEST(cache_schedule, shifts_leave_room_for_tokens_that_become_the_newest) {
    Fixture f("h2o:k=f32,v=f32,budget=60,residual=20,cadence=12"); // 14 newest are protected
    f.step(0, 40);
    f.cache.anchor(0, token_ids(4, 34)); // all that fits
    while (f.device.eviction_passes.empty() || f.cache.positions(0, 0, 0).size() < 49) f.step(0, 1);
    for (int i = 0; i < 11; ++i) f.step(0, 1);
    const std::vector<int32_t> resident = f.cache.positions(0, 0, 0);
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
        f.cache.step(args);
    };
    append({70, 71, 72, 73, 74, 10, 11});
    EXPECT_EQ(places(f.device), "70+4@0/4 74+1@4/16 10+2@5/16");
    EXPECT_EQ(f.device.appends[2].position, 5);
    EXPECT_EQ(f.device.appends[2].positions.shape[3], 80);
    append({71, 12, 74});
    EXPECT_EQ(joined(f.device.log), "edit edit append append append");
    EXPECT_EQ(f.cache.positions(0, 0, 0), (std::vector<int32_t>{10, 11, 12, 70, 71, 72, 73, 74}));
    EXPECT_THROW(append({3, 3}), Error);
    EXPECT_THROW(append({80}), Error);
    EXPECT_THROW(append({-1}), Error);
    EXPECT_THROW(f.cache.truncate(0, 2), Error);
    EXPECT_THROW(f.cache.shift(0, 2, 3, 1), Error);
    f.cache.remove(0, 70, 75);
    EXPECT_EQ(f.cache.positions(0, 0, 0), (std::vector<int32_t>{10, 11, 12}));
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
        f.cache.step(args);
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
        for (const SlotAttention& attention : f.device.attentions)
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
