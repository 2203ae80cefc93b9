// The reference's SlotFlush against judgements worked out by hand, and what holds of every one.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "reference/row.hpp"
#include "reference_slots.hpp"

namespace winnow::reference {
namespace {

using Map = std::vector<int32_t>;
constexpr int32_t none = free_slot;

// Ranks by importance, protects nothing, and demands what `must` says when 0 tokens come.
Description by_importance(int64_t alive, int64_t must) {
    Description description;
    description.ranking = Ranking::importance;
    description.budget = description.target = alive - must;
    return description;
}

struct Flushing {
    TestStore dense, body;
    Ints free_slots, state;
    SlotFlush args;

    Flushing(const std::vector<Map>& dense_maps, const std::vector<Map>& body_maps)
        : dense(dense_maps), body(body_maps), free_slots({int64_t(body_maps.size()), 1, 5}, 99),
          state({int64_t(body_maps.size()), 1, 4}, 0) {
        args.ring_count = dense.k.shape[1];
    }
    void run(ReferenceDevice& device) {
        args.dense = dense;
        args.body = body;
        args.free_slots = free_slots;
        args.head_state = state;
        device.launch(args);
        dense.expect_rows();
        body.expect_rows();
    }
    void expect_state(int64_t head, const HeadState& want) {
        EXPECT_EQ(state.row(head), (Map{want.live, want.given_up, want.missing, want.reserved})) << "head " << head;
    }
};

using SlotFlushTest = ReferenceSlots;

TEST_F(SlotFlushTest, a_window_gives_up_the_oldest) {
    // A sink and a ring of four of which tokens 4 and 5 leave; 6 tokens in all, of which 2 come.
    const Map dense = {0, 5, 6, 7, 4};
    Flushing f({dense, dense}, {{1, 2, 3, none}, {none, none, 1 | anchor_flag, none}});
    f.state = Ints({2, 1, 4}, 10);
    f.args.description.sink = 1;
    f.args.description.recent = 2;
    f.args.description.budget = f.args.description.target = 6;
    f.args.seen = 8;
    f.args.incoming = 2;
    f.args.ring_first = 1;
    f.args.ring_count = 4;
    f.args.leaving_offset = 4'000'000'003; // slots 4 and 1
    f.args.leaving_count = 2;
    f.run(device_);

    // 8 + 2 - 6 = 4 go, 1 to 4; token 5 moves.
    EXPECT_EQ(f.dense.map(0), (Map{0, none, 6, 7, none}));
    EXPECT_EQ(f.body.map(0), (Map{5, none, none, none}));
    EXPECT_EQ(f.free_slots.row(0), (Map{1, 2, 3, none, none}));
    f.expect_state(0, {.live = 4, .given_up = 14, .missing = 0, .reserved = 10});
    // 6 + 2 - 6 = 2 go, 4 and 5, as 1 is an anchor.
    EXPECT_EQ(f.dense.map(1), (Map{0, none, 6, 7, none}));
    EXPECT_EQ(f.body.map(1), (Map{none, none, 1 | anchor_flag, none}));
    EXPECT_EQ(f.free_slots.row(1), (Map{0, 1, 3, none, none}));
    f.expect_state(1, {.live = 4, .given_up = 12, .missing = 0, .reserved = 10});
}

TEST_F(SlotFlushTest, the_least_important_go_and_rows_take_their_importance_along) {
    Flushing f({{10, 8 | anchor_flag, 9}}, {{3, 1, 2, 4, none, none}});
    f.dense.importance.values = {.5f, 0, .2f};
    f.body.importance.values = {.1f, .2f, not_a_number, .2f, 7, 7};
    f.args.description = by_importance(7, 3);
    f.args.seen = 11;
    f.args.leaving_offset = 1;
    f.args.leaving_count = 2;
    f.run(device_);
    // NaN is the least; of 1, 4 and 9, which are alike, the oldest goes.
    EXPECT_EQ(f.dense.map(0), (Map{10, none, none}));
    EXPECT_EQ(f.body.map(0), (Map{8 | anchor_flag, 9, none, 4, none, none}));
    EXPECT_EQ(f.body.importance.row(0)[0], 0);
    EXPECT_EQ(f.body.importance.row(0)[1], .2f);
    EXPECT_EQ(f.free_slots.row(0), (Map{2, 4, 5, none, none}));
}

TEST_F(SlotFlushTest, distance_is_that_of_the_values_that_rows_stand_for) {
    for (const bool has_outputs : {true, false}) {
        Flushing f({{8}}, {{1, 3, 5}});
        f.body.v_mean = Floats({1, 1, 2}, 0);
        f.body.v_mean.set_row(0, 0, {103, -3});
        for (int64_t slot = 0; slot < 3; ++slot)
            for (int64_t d = 0; d < 2; ++d) f.body.v.at(0, slot, d) -= f.body.v_mean.at(0, 0, d);
        // Value n is (100 + n, -n), and o that of token 3, whatever it is worth. Without outputs it is 0, and the norm
        // counts: 1 and 3 are worth twice 5, and |v_5| < |v_8|.
        Floats sum({1, 1, 2}, 0);
        sum.set_row(0, 0, {4 * 103, 4 * -3});
        f.dense.importance.values = {1};
        f.body.importance.values = has_outputs ? std::vector<float>{1, 1000, 1} : std::vector<float>{2, 2, 1};
        f.args.description = by_importance(4, 1);
        f.args.description.ranking = Ranking::importance_value_distance;
        f.args.seen = 9;
        f.args.output_sum = sum;
        f.args.outputs = has_outputs ? 4 : 0;
        f.run(device_);
        EXPECT_EQ(f.body.map(0), has_outputs ? (Map{1, none, 5}) : (Map{1, 3, none}));
        EXPECT_EQ(sum.values, (std::vector<float>{0, 0}));
    }
}

TEST_F(SlotFlushTest, norm_and_queries_seen_rank_too) {
    // |v| grows with the number: 1.1 |v_1| > |v_5|, and a token's queries are 9 - n: .5 / 8 < .3 / 4 < 1 / 6.
    for (const Ranking ranking : {Ranking::importance_value_norm, Ranking::importance_per_query}) {
        Flushing f({{3}}, {{1, 5}});
        const bool is_norm = ranking == Ranking::importance_value_norm;
        f.dense.importance.values = {is_norm ? 2.f : 1.f};
        f.body.importance.values = is_norm ? std::vector<float>{1.1f, 1} : std::vector<float>{.5f, .3f};
        f.args.description = by_importance(3, 1);
        f.args.description.ranking = ranking;
        f.args.seen = 9;
        f.run(device_);
        EXPECT_EQ(f.body.map(0), is_norm ? (Map{1, none}) : (Map{none, 5}));
    }
}

TEST_F(SlotFlushTest, as_many_go_as_leaving_rows_need_room) {
    Flushing f({{3, 4, 5, 6}}, {{1, 2}});
    f.dense.importance.values = {.4f, .6f, .1f, .3f};
    f.body.importance.values = {.2f, .5f};
    f.args.description = by_importance(6, 0);
    f.args.seen = 7;
    f.args.leaving_count = 2; // 3 and 4
    f.run(device_);
    // In the order 5, 1, 6, 3: 5 and 6 make no room, 1 makes room for one, and 3 then needs none.
    EXPECT_EQ(f.dense.map(0), (Map{none, none, none, none}));
    EXPECT_EQ(f.body.map(0), (Map{4, 2}));
    f.expect_state(0, {.live = 2, .given_up = 4});
}

TEST_F(SlotFlushTest, what_is_protected_stays_and_is_missed) {
    // 4 + 2 tokens where 3 may be, and only token 2 is neither sink, nor recent, nor an anchor.
    Flushing f({{4}}, {{0, 1 | anchor_flag, 2, none}});
    f.args.description = by_importance(3, 0);
    f.args.description.sink = 1;
    f.args.description.recent = 2;
    f.args.seen = 5;
    f.args.incoming = 2;
    f.args.leaving_count = 1;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none}));
    EXPECT_EQ(f.body.map(0), (Map{0, 1 | anchor_flag, 4, none}));
    f.expect_state(0, {.live = 3, .given_up = 1, .missing = 2});
}

TEST_F(SlotFlushTest, rows_without_room_are_given_up_and_missed) {
    Flushing f({{2, 3, 4}}, {{0 | anchor_flag, none, 1 | anchor_flag}});
    f.args.description = by_importance(5, 0);
    f.args.description.recent = 4;
    f.args.seen = 5;
    f.args.leaving_count = 3;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none, none, none}));
    EXPECT_EQ(f.body.map(0), (Map{0 | anchor_flag, 2, 1 | anchor_flag}));
    EXPECT_EQ(f.free_slots.row(0), (Map{none, none, none, none, none}));
    f.expect_state(0, {.live = 3, .given_up = 2, .missing = 2});
}

TEST_F(SlotFlushTest, a_victim_that_makes_no_room_is_not_enough) {
    Flushing f({{2 | anchor_flag, 3 | anchor_flag, 4}}, {{0 | anchor_flag, 1 | anchor_flag}});
    f.args.description = by_importance(5, 0);
    f.args.seen = 5;
    f.args.leaving_count = 2;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none, none, none}));
    EXPECT_EQ(f.body.map(0), (Map{0 | anchor_flag, 1 | anchor_flag}));
    f.expect_state(0, {.live = 2, .given_up = 3, .missing = 2});
}

// Token 2, in the dense store, goes before 3 and makes no room; 4 is protected.
TEST_F(SlotFlushTest, slots_of_the_body_that_are_wanted_free_become_so_or_are_missed) {
    for (const int64_t wanted : {0, 1, 2, 3}) {
        Flushing f({{2}}, {{3, 5, 4 | anchor_flag, none}});
        f.args.description.budget = f.args.description.target = 9;
        f.args.seen = 6;
        f.args.wanted_free = wanted;
        f.run(device_);
        EXPECT_EQ(f.dense.map(0), wanted > 1 ? (Map{none}) : (Map{2}));
        const Map maps[] = {{3, 5, 4 | anchor_flag, none},
                            {3, 5, 4 | anchor_flag, none},
                            {none, 5, 4 | anchor_flag, none},
                            {none, none, 4 | anchor_flag, none}};
        EXPECT_EQ(f.body.map(0), maps[wanted]);
    }
    Flushing f({{2}}, {{3 | anchor_flag, 5, 4 | anchor_flag, none}});
    f.args.description.budget = f.args.description.target = 9;
    f.args.seen = 6;
    f.args.wanted_free = 4;
    f.run(device_);
    EXPECT_EQ(f.body.map(0), (Map{3 | anchor_flag, none, 4 | anchor_flag, none}));
    f.expect_state(0, {.live = 2, .given_up = 2, .missing = 2});
}

TEST_F(SlotFlushTest, numbers_may_have_positions) {
    // Cells 0 to 5 hold the positions 7, 2, 9, 1, 8, 3.
    Flushing f({{0, 2}}, {{1, 3, 5, none}});
    Ints positions({1, 1, 6}, 0);
    positions.values = {7, 2, 9, 1, 8, 3};
    f.args.positions = positions;
    f.args.description.budget = f.args.description.target = 3;
    f.args.description.sink = 2; // position 1, in cell 3
    f.args.seen = 10;
    f.args.leaving_count = 1;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none, 2}));
    EXPECT_EQ(f.body.map(0), (Map{0, 3, none, none}));
}

TEST_F(SlotFlushTest, means_are_those_of_the_ring) {
    Flushing f({{0, 5, none, 7}, {0, none, none, none}}, {{none, none}, {none, none}});
    f.body.k_mean = f.body.v_mean = Floats({2, 1, 2}, 77);
    f.args.description.budget = f.args.description.target = 8;
    f.args.seen = 8;
    f.args.ring_first = 1;
    f.args.ring_count = 3;
    f.args.leaving_count = 1;
    f.args.set_means = true;
    f.run(device_);
    EXPECT_EQ(f.body.map(0), (Map{5, none}));
    EXPECT_EQ(f.body.k_mean.row(0), (std::vector<float>{6, 6}));
    EXPECT_EQ(f.body.v_mean.row(0), (std::vector<float>{106, -6}));
    EXPECT_EQ(f.body.k.row(0, 0), (std::vector<float>{-1, -1}));
    EXPECT_EQ(f.body.k_mean.row(1), (std::vector<float>{0, 0}));
}

TEST_F(SlotFlushTest, without_sinks_and_ring_there_is_the_body) {
    Flushing f({{none}}, {{3, 1, none, 2, none}});
    f.dense = TestStore();
    f.args.ring_count = 1;
    f.args.set_means = true;
    f.args.description.budget = f.args.description.target = 4;
    f.args.seen = 4;
    f.args.incoming = 2;
    f.run(device_);
    EXPECT_EQ(f.body.map(0), (Map{3, none, none, 2, none}));
    EXPECT_EQ(f.free_slots.row(0), (Map{1, 2, 4, none, none}));
    f.expect_state(0, {.live = 2, .given_up = 1});
}

TEST_F(SlotFlushTest, rows_are_packed_as_an_append_packs_them) {
    constexpr int64_t size = 32;
    Floats rows({1, 2, size}, 0);
    for (size_t i = 0; i < rows.values.size(); ++i) rows.values[i] = std::sin(float(i));
    const auto bytes = int64_t(row_bytes(Type::turbo4, size));
    for (const Norm norm : {Norm::plain, Norm::unit_slope}) {
        std::vector<std::byte> k(static_cast<size_t>(bytes)), v(static_cast<size_t>(bytes)), want(k.size());
        auto packed = [&](std::vector<std::byte>& memory) {
            Tensor tensor;
            tensor.type = Type::turbo4;
            tensor.data = memory.data();
            tensor.shape = {1, 1, 1, size};
            tensor.stride = {bytes, bytes, bytes, 0};
            return tensor;
        };
        Ints ring({1, 1, 2}, 4), body({1, 1, 1}, none), state({1, 1, 4}, 0);
        ring.values = {none, 4};
        SlotFlush args;
        args.dense = {rows, rows, ring, {}, {}, {}};
        args.body = {packed(k), packed(v), body, {}, {}, {}};
        args.description.budget = args.description.target = 2;
        args.seen = 5;
        args.ring_count = args.leaving_count = 2;
        args.k_norm = norm;
        args.v_norm = Norm::corrected;
        args.head_state = state;
        device_.launch(args);
        EXPECT_EQ(body.values, (Map{4}));
        const std::vector<float> row = rows.row(0, 1);
        const std::vector<double> numbers(row.begin(), row.end());
        encode_row(Type::turbo4, want.data(), size, numbers.data(), norm);
        EXPECT_EQ(k, want);
        encode_row(Type::turbo4, want.data(), size, numbers.data(), Norm::corrected);
        EXPECT_EQ(v, want);
    }
}

// ---- What holds of every judgement ---------------------------------------------------------------------------------

std::set<int32_t> tokens_of(Flushing& f, int64_t head) {
    std::set<int32_t> tokens;
    for (TestStore* store : {&f.dense, &f.body})
        for (const int32_t entry : store->map(head))
            if (entry >= 0 && !tokens.insert(entry & ~anchor_flag).second) ADD_FAILURE() << "twice: " << entry;
    return tokens;
}

// Maps of a random sequence of `seen` tokens: the newest in the ring, of the others some in the body.
Flushing random_flush(std::mt19937_64& engine) {
    const auto ring = int64_t(1 + engine() % 8), slots = int64_t(1 + engine() % 20);
    std::vector<Map> dense_maps, body_maps;
    const auto seen = int32_t(ring + 2 * slots);
    for (int head = 0; head < 2; ++head) {
        Map dense(size_t(ring), none), body(size_t(slots), none);
        for (int64_t i = 0; i < ring; ++i)
            if (engine() % 5) dense[size_t((seen - 1 - i) % ring)] = int32_t(seen - 1 - i);
        for (int64_t slot = 0; slot < slots; ++slot)
            if (engine() % 4) body[size_t(slot)] = int32_t(2 * slot) | (engine() % 6 ? 0 : anchor_flag);
        std::shuffle(body.begin(), body.end(), engine);
        dense_maps.push_back(dense);
        body_maps.push_back(body);
    }
    Flushing f(dense_maps, body_maps);
    for (TestStore* store : {&f.dense, &f.body})
        for (float& importance : store->importance.values) importance = float(engine() % 10);
    f.args.description.ranking = engine() % 2 ? Ranking::age : Ranking::importance;
    f.args.description.sink = int64_t(engine() % 3);
    f.args.description.recent = int64_t(engine() % 5);
    f.args.description.budget = f.args.description.target = 1 + int64_t(engine() % uint64_t(ring + slots));
    f.args.seen = seen;
    f.args.incoming = int64_t(engine() % 4);
    f.args.leaving_offset = seen % ring;
    f.args.leaving_count = int64_t(engine() % uint64_t(ring + 1));
    return f;
}

TEST_F(SlotFlushTest, nothing_is_lost_that_is_not_counted) {
    std::mt19937_64 engine(1);
    int missing = 0, moved = 0;
    for (int round = 0; round < 500; ++round) {
        Flushing f = random_flush(engine);
        const Description& d = f.args.description;
        std::set<int32_t> before[2], kept[2];
        for (int64_t head : {0, 1}) {
            before[head] = tokens_of(f, head);
            for (TestStore* store : {&f.dense, &f.body})
                for (const int32_t entry : store->map(head)) {
                    const int32_t number = entry & ~anchor_flag;
                    if (entry >= 0 && ((entry & anchor_flag) || number < d.sink || number >= f.args.seen - d.recent))
                        kept[head].insert(number);
                }
        }
        f.run(device_);
        for (int64_t head : {0, 1}) {
            const std::set<int32_t> after = tokens_of(f, head);
            const Map state = f.state.row(head);
            EXPECT_TRUE(std::includes(before[head].begin(), before[head].end(), after.begin(), after.end()));
            EXPECT_EQ(state[0], int32_t(after.size()));
            EXPECT_EQ(state[1], int32_t(before[head].size() - after.size()));
            if (state[2] == 0) {
                EXPECT_LE(int64_t(after.size()) + f.args.incoming, d.budget);
                EXPECT_TRUE(std::includes(after.begin(), after.end(), kept[head].begin(), kept[head].end()));
            }
            missing += state[2] > 0;
            for (int64_t i = 0; i < f.args.leaving_count; ++i)
                EXPECT_EQ(f.dense.map(head)[size_t((f.args.leaving_offset + i) % f.args.ring_count)], none);
            for (const int32_t entry : f.body.map(head)) moved += entry >= 2 * int32_t(f.body.k.shape[1]);
        }
    }
    EXPECT_GT(missing, 50); // both kinds were tried
    EXPECT_LT(missing, 950);
    EXPECT_GT(moved, 100);
}

} // namespace
} // namespace winnow::reference
