// The reference's SlotEvict against eviction passes worked out by hand, and what holds of every one.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

#include "device/network.hpp"
#include "reference/row.hpp"
#include "reference_slots.hpp"

namespace winnow::reference {
namespace {

using Map = std::vector<int32_t>;
constexpr int32_t none = free_slot;

// Ranks by importance, protects nothing, and requires `required` victims when no tokens come.
Description by_importance(int64_t live, int64_t required) {
    Description description;
    description.ranking = Ranking::importance;
    description.budget = description.target = live - required;
    return description;
}

struct Evicting {
    TestSegment dense, packed;
    Ints free_slots, state;
    SlotEvict args;

    Evicting(const std::vector<Map>& dense_maps, const std::vector<Map>& packed_maps)
        : dense(dense_maps), packed(packed_maps), free_slots({static_cast<int64_t>(packed_maps.size()), 1, 5}, 99),
          state({static_cast<int64_t>(packed_maps.size()), 1, 4}, 0) {
        args.residual_count = dense.k.shape[1];
    }
    void run(ReferenceDevice& device) {
        args.dense = dense;
        args.packed = packed;
        args.free_slots = free_slots;
        args.head_state = state;
        device.launch(args);
        dense.expect_rows();
        packed.expect_rows();
    }
    void expect_state(int64_t head, const HeadState& want) {
        EXPECT_EQ(state.row(head), (Map{want.live, want.evicted, want.shortfall, want.reserved})) << "head " << head;
    }
};

using reference_slot_evict = reference_slots;

TEST_F(reference_slot_evict, a_window_evicts_the_oldest) {
    // A sink and a residual window of four of which tokens 4 and 5 leave; 6 tokens in all, of which 2 come.
    const Map dense = {0, 5, 6, 7, 4};
    Evicting f({dense, dense}, {{1, 2, 3, none}, {none, none, 1 | anchor_flag, none}});
    f.state = Ints({2, 1, 4}, 10);
    f.args.description.sink = 1;
    f.args.description.recent = 2;
    f.args.description.budget = f.args.description.target = 6;
    f.args.seen = 8;
    f.args.incoming = 2;
    f.args.residual_first = 1;
    f.args.residual_count = 4;
    f.args.leaving_offset = 4'000'000'003; // slots 4 and 1
    f.args.leaving_count = 2;
    f.run(device_);

    // 8 + 2 - 6 = 4 are evicted, 1 to 4; token 5 moves.
    EXPECT_EQ(f.dense.map(0), (Map{0, none, 6, 7, none}));
    EXPECT_EQ(f.packed.map(0), (Map{5, none, none, none}));
    EXPECT_EQ(f.free_slots.row(0), (Map{1, 2, 3, none, none}));
    f.expect_state(0, {.live = 4, .evicted = 14, .shortfall = 0, .reserved = 10});
    // 6 + 2 - 6 = 2 are evicted, 4 and 5, as 1 is an anchor.
    EXPECT_EQ(f.dense.map(1), (Map{0, none, 6, 7, none}));
    EXPECT_EQ(f.packed.map(1), (Map{none, none, 1 | anchor_flag, none}));
    EXPECT_EQ(f.free_slots.row(1), (Map{0, 1, 3, none, none}));
    f.expect_state(1, {.live = 4, .evicted = 12, .shortfall = 0, .reserved = 10});
}

TEST_F(reference_slot_evict, the_least_important_go_and_rows_take_their_importance_along) {
    Evicting f({{10, 8 | anchor_flag, 9}}, {{3, 1, 2, 4, none, none}});
    f.dense.importance.values = {.5f, 0, .2f};
    f.packed.importance.values = {.1f, .2f, not_a_number, .2f, 7, 7};
    f.args.description = by_importance(7, 3);
    f.args.seen = 11;
    f.args.leaving_offset = 1;
    f.args.leaving_count = 2;
    f.run(device_);
    // NaN is the least; of 1, 4 and 9, which are alike, the oldest is evicted.
    EXPECT_EQ(f.dense.map(0), (Map{10, none, none}));
    EXPECT_EQ(f.packed.map(0), (Map{8 | anchor_flag, 9, none, 4, none, none}));
    EXPECT_EQ(f.packed.importance.row(0)[0], 0);
    EXPECT_EQ(f.packed.importance.row(0)[1], .2f);
    EXPECT_EQ(f.free_slots.row(0), (Map{2, 4, 5, none, none}));
}

TEST_F(reference_slot_evict, distance_is_that_of_the_values_that_rows_stand_for) {
    for (const bool has_outputs : {true, false}) {
        Evicting f({{8}}, {{1, 3, 5}});
        f.packed.v_mean = Floats({1, 1, 2}, 0);
        f.packed.v_mean.set_row(0, 0, {103, -3});
        for (int64_t slot = 0; slot < 3; ++slot)
            for (int64_t d = 0; d < 2; ++d) f.packed.v.at(0, slot, d) -= f.packed.v_mean.at(0, 0, d);
        // Value n is (100 + n, -n), and o that of token 3, whatever it is worth. Without outputs it is 0, and the norm
        // counts: 1 and 3 are worth twice 5, and |v_5| < |v_8|.
        Floats sum({1, 1, 2}, 0);
        sum.set_row(0, 0, {4 * 103, 4 * -3});
        f.dense.importance.values = {1};
        f.packed.importance.values = has_outputs ? std::vector<float>{1, 1000, 1} : std::vector<float>{2, 2, 1};
        f.args.description = by_importance(4, 1);
        f.args.description.ranking = Ranking::importance_value_distance;
        f.args.seen = 9;
        f.args.output_sum = sum;
        f.args.outputs = has_outputs ? 4 : 0;
        f.run(device_);
        EXPECT_EQ(f.packed.map(0), has_outputs ? (Map{1, none, 5}) : (Map{1, 3, none}));
        EXPECT_EQ(sum.values, (std::vector<float>{0, 0}));
    }
}

TEST_F(reference_slot_evict, each_head_goes_by_its_own_network) {
    // The first head's prediction is 2 max(ln I - 1, 0) - max(ln age, 0), the second's grows with the age.
    Evicting f({{3}, {3}}, {{1, 5}, {1, 5}});
    std::array<HiddenUnit, network_hidden> first{}, second{};
    first[0] = {1, 0, -1, 2};
    first[1] = {0, 1, 0, -1};
    second.back() = {0, 1, 0, 1};
    Floats network({2, 1, network_numbers}, 0);
    for (int64_t head = 0; head < 2; ++head) {
        std::vector<float> numbers;
        for (const HiddenUnit& unit : head == 0 ? first : second)
            numbers.insert(numbers.end(), {unit.importance, unit.age, unit.bias, unit.out});
        network.set_row(head, 0, numbers);
    }
    // Ages are 6 of token 3, 8 of token 1 and 4 of token 5: the first head has 2 ln 3 - 2 - ln 6 = -1.59, -ln 8 = -2.08
    // where it is 0 below e, and -ln 4.
    f.dense.importance.values = {3, 3};
    f.packed.importance.values = {2, .1f, 2, .1f};
    f.args.description = by_importance(3, 1);
    f.args.description.ranking = Ranking::prediction;
    f.args.seen = 9;
    f.args.network = network;
    f.run(device_);
    EXPECT_EQ(f.packed.map(0), (Map{none, 5}));
    EXPECT_EQ(f.packed.map(1), (Map{1, none}));
    EXPECT_NEAR(predict(first.data(), 3, 6), 2 * std::log(3.) - 2 - std::log(6.), 1e-6);
    for (const double importance : {0., -1., static_cast<double>(NAN)})
        EXPECT_NEAR(predict(second.data(), importance, 0), 0, 1e-6);
}

TEST_F(reference_slot_evict, as_many_go_as_leaving_rows_need_room) {
    Evicting f({{3, 4, 5, 6}}, {{1, 2}});
    f.dense.importance.values = {.4f, .6f, .1f, .3f};
    f.packed.importance.values = {.2f, .5f};
    f.args.description = by_importance(6, 0);
    f.args.seen = 7;
    f.args.leaving_count = 2; // 3 and 4
    f.run(device_);
    // In the order 5, 1, 6, 3: 5 and 6 make no room, 1 makes room for one, and 3 then needs none.
    EXPECT_EQ(f.dense.map(0), (Map{none, none, none, none}));
    EXPECT_EQ(f.packed.map(0), (Map{4, 2}));
    f.expect_state(0, {.live = 2, .evicted = 4});
}

TEST_F(reference_slot_evict, what_is_protected_stays_and_is_missed) {
    // 4 + 2 tokens where 3 may be, and only token 2 is neither sink, nor recent, nor an anchor.
    Evicting f({{4}}, {{0, 1 | anchor_flag, 2, none}});
    f.args.description = by_importance(3, 0);
    f.args.description.sink = 1;
    f.args.description.recent = 2;
    f.args.seen = 5;
    f.args.incoming = 2;
    f.args.leaving_count = 1;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none}));
    EXPECT_EQ(f.packed.map(0), (Map{0, 1 | anchor_flag, 4, none}));
    f.expect_state(0, {.live = 3, .evicted = 1, .shortfall = 2});
}

TEST_F(reference_slot_evict, rows_without_room_are_evicted_and_missed) {
    Evicting f({{2, 3, 4}}, {{0 | anchor_flag, none, 1 | anchor_flag}});
    f.args.description = by_importance(5, 0);
    f.args.description.recent = 4;
    f.args.seen = 5;
    f.args.leaving_count = 3;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none, none, none}));
    EXPECT_EQ(f.packed.map(0), (Map{0 | anchor_flag, 2, 1 | anchor_flag}));
    EXPECT_EQ(f.free_slots.row(0), (Map{none, none, none, none, none}));
    f.expect_state(0, {.live = 3, .evicted = 2, .shortfall = 2});
}

TEST_F(reference_slot_evict, a_victim_that_makes_no_room_is_not_enough) {
    Evicting f({{2 | anchor_flag, 3 | anchor_flag, 4}}, {{0 | anchor_flag, 1 | anchor_flag}});
    f.args.description = by_importance(5, 0);
    f.args.seen = 5;
    f.args.leaving_count = 2;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none, none, none}));
    EXPECT_EQ(f.packed.map(0), (Map{0 | anchor_flag, 1 | anchor_flag}));
    f.expect_state(0, {.live = 2, .evicted = 3, .shortfall = 2});
}

// Token 2, in the dense segment, is evicted before 3 and frees no packed slot; 4 is protected.
TEST_F(reference_slot_evict, slots_of_the_packed_that_are_wanted_free_become_so_or_are_missed) {
    for (const int64_t wanted : {0, 1, 2, 3}) {
        Evicting f({{2}}, {{3, 5, 4 | anchor_flag, none}});
        f.args.description.budget = f.args.description.target = 9;
        f.args.seen = 6;
        f.args.wanted_free = wanted;
        f.run(device_);
        EXPECT_EQ(f.dense.map(0), wanted > 1 ? (Map{none}) : (Map{2}));
        const Map maps[] = {{3, 5, 4 | anchor_flag, none},
                            {3, 5, 4 | anchor_flag, none},
                            {none, 5, 4 | anchor_flag, none},
                            {none, none, 4 | anchor_flag, none}};
        EXPECT_EQ(f.packed.map(0), maps[wanted]);
    }
    Evicting f({{2}}, {{3 | anchor_flag, 5, 4 | anchor_flag, none}});
    f.args.description.budget = f.args.description.target = 9;
    f.args.seen = 6;
    f.args.wanted_free = 4;
    f.run(device_);
    EXPECT_EQ(f.packed.map(0), (Map{3 | anchor_flag, none, 4 | anchor_flag, none}));
    f.expect_state(0, {.live = 2, .evicted = 2, .shortfall = 2});
}

TEST_F(reference_slot_evict, numbers_may_have_positions) {
    // Cells 0 to 5 hold the positions 7, 2, 9, 1, 8, 3.
    Evicting f({{0, 2}}, {{1, 3, 5, none}});
    Ints positions({1, 1, 6}, 0);
    positions.values = {7, 2, 9, 1, 8, 3};
    f.args.positions = positions;
    f.args.description.budget = f.args.description.target = 3;
    f.args.description.sink = 2; // position 1, in cell 3
    f.args.seen = 10;
    f.args.leaving_count = 1;
    f.run(device_);
    EXPECT_EQ(f.dense.map(0), (Map{none, 2}));
    EXPECT_EQ(f.packed.map(0), (Map{0, 3, none, none}));
}

TEST_F(reference_slot_evict, means_are_those_of_the_residual) {
    Evicting f({{0, 5, none, 7}, {0, none, none, none}}, {{none, none}, {none, none}});
    f.packed.k_mean = f.packed.v_mean = Floats({2, 1, 2}, 77);
    f.args.description.budget = f.args.description.target = 8;
    f.args.seen = 8;
    f.args.residual_first = 1;
    f.args.residual_count = 3;
    f.args.leaving_count = 1;
    f.args.set_means = true;
    f.run(device_);
    EXPECT_EQ(f.packed.map(0), (Map{5, none}));
    EXPECT_EQ(f.packed.k_mean.row(0), (std::vector<float>{6, 6}));
    EXPECT_EQ(f.packed.v_mean.row(0), (std::vector<float>{106, -6}));
    EXPECT_EQ(f.packed.k.row(0, 0), (std::vector<float>{-1, -1}));
    EXPECT_EQ(f.packed.k_mean.row(1), (std::vector<float>{0, 0}));
}

TEST_F(reference_slot_evict, without_sinks_and_residual_there_is_the_packed) {
    Evicting f({{none}}, {{3, 1, none, 2, none}});
    f.dense = TestSegment();
    f.args.residual_count = 1;
    f.args.set_means = true;
    f.args.description.budget = f.args.description.target = 4;
    f.args.seen = 4;
    f.args.incoming = 2;
    f.run(device_);
    EXPECT_EQ(f.packed.map(0), (Map{3, none, none, 2, none}));
    EXPECT_EQ(f.free_slots.row(0), (Map{1, 2, 4, none, none}));
    f.expect_state(0, {.live = 2, .evicted = 1});
}

TEST_F(reference_slot_evict, rows_are_packed_as_an_append_packs_them) {
    constexpr int64_t size = 32;
    Floats rows({1, 2, size}, 0);
    for (size_t i = 0; i < rows.values.size(); ++i) rows.values[i] = std::sin(static_cast<float>(i));
    const auto bytes = static_cast<int64_t>(row_bytes(Type::turbo4, size));
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
        Ints residual({1, 1, 2}, 4), packed_map({1, 1, 1}, none), state({1, 1, 4}, 0);
        residual.values = {none, 4};
        SlotEvict args;
        args.dense = {rows, rows, residual, {}, {}, {}};
        args.packed = {packed(k), packed(v), packed_map, {}, {}, {}};
        args.description.budget = args.description.target = 2;
        args.seen = 5;
        args.residual_count = args.leaving_count = 2;
        args.k_norm = norm;
        args.v_norm = Norm::corrected;
        args.head_state = state;
        device_.launch(args);
        EXPECT_EQ(packed_map.values, (Map{4}));
        const std::vector<float> row = rows.row(0, 1);
        const std::vector<double> numbers(row.begin(), row.end());
        encode_row(Type::turbo4, want.data(), size, numbers.data(), norm);
        EXPECT_EQ(k, want);
        encode_row(Type::turbo4, want.data(), size, numbers.data(), Norm::corrected);
        EXPECT_EQ(v, want);
    }
}

// ---- What holds of every eviction pass
// ---------------------------------------------------------------------------------

std::set<int32_t> tokens_of(Evicting& f, int64_t head) {
    std::set<int32_t> tokens;
    for (TestSegment* segment : {&f.dense, &f.packed})
        for (const int32_t entry : segment->map(head))
            if (entry >= 0 && !tokens.insert(entry & ~anchor_flag).second) ADD_FAILURE() << "twice: " << entry;
    return tokens;
}

// Maps of a random sequence of `seen` tokens: the newest in the residual window, of the others some in the packed
// segment.
Evicting random_eviction(std::mt19937_64& engine) {
    const auto residual = static_cast<int64_t>(1 + engine() % 8), slots = static_cast<int64_t>(1 + engine() % 20);
    std::vector<Map> dense_maps, packed_maps;
    const auto seen = static_cast<int32_t>(residual + 2 * slots);
    for (int head = 0; head < 2; ++head) {
        Map dense(static_cast<size_t>(residual), none), packed(static_cast<size_t>(slots), none);
        for (int64_t i = 0; i < residual; ++i)
            if (engine() % 5)
                dense[static_cast<size_t>((seen - 1 - i) % residual)] = static_cast<int32_t>(seen - 1 - i);
        for (int64_t slot = 0; slot < slots; ++slot)
            if (engine() % 4)
                packed[static_cast<size_t>(slot)] = static_cast<int32_t>(2 * slot) | (engine() % 6 ? 0 : anchor_flag);
        std::shuffle(packed.begin(), packed.end(), engine);
        dense_maps.push_back(dense);
        packed_maps.push_back(packed);
    }
    Evicting f(dense_maps, packed_maps);
    for (TestSegment* segment : {&f.dense, &f.packed})
        for (float& importance : segment->importance.values) importance = static_cast<float>(engine() % 10);
    f.args.description.ranking = engine() % 2 ? Ranking::age : Ranking::importance;
    f.args.description.sink = static_cast<int64_t>(engine() % 3);
    f.args.description.recent = static_cast<int64_t>(engine() % 5);
    f.args.description.budget = f.args.description.target =
        1 + static_cast<int64_t>(engine() % static_cast<uint64_t>(residual + slots));
    f.args.seen = seen;
    f.args.incoming = static_cast<int64_t>(engine() % 4);
    f.args.leaving_offset = seen % residual;
    f.args.leaving_count = static_cast<int64_t>(engine() % static_cast<uint64_t>(residual + 1));
    return f;
}

TEST_F(reference_slot_evict, nothing_is_lost_that_is_not_counted) {
    std::mt19937_64 engine(1);
    int shortfall = 0, moved = 0;
    for (int round = 0; round < 500; ++round) {
        Evicting f = random_eviction(engine);
        const Description& d = f.args.description;
        std::set<int32_t> before[2], kept[2];
        for (int64_t head : {0, 1}) {
            before[head] = tokens_of(f, head);
            for (TestSegment* segment : {&f.dense, &f.packed})
                for (const int32_t entry : segment->map(head)) {
                    const int32_t token_id = entry & ~anchor_flag;
                    if (entry >= 0 &&
                        ((entry & anchor_flag) || token_id < d.sink || token_id >= f.args.seen - d.recent))
                        kept[head].insert(token_id);
                }
        }
        f.run(device_);
        for (int64_t head : {0, 1}) {
            const std::set<int32_t> after = tokens_of(f, head);
            const Map state = f.state.row(head);
            EXPECT_TRUE(std::includes(before[head].begin(), before[head].end(), after.begin(), after.end()));
            EXPECT_EQ(state[0], static_cast<int32_t>(after.size()));
            EXPECT_EQ(state[1], static_cast<int32_t>(before[head].size() - after.size()));
            if (state[2] == 0) {
                EXPECT_LE(static_cast<int64_t>(after.size()) + f.args.incoming, d.budget);
                EXPECT_TRUE(std::includes(after.begin(), after.end(), kept[head].begin(), kept[head].end()));
            }
            shortfall += state[2] > 0;
            for (int64_t i = 0; i < f.args.leaving_count; ++i)
                EXPECT_EQ(f.dense.map(head)[static_cast<size_t>((f.args.leaving_offset + i) % f.args.residual_count)],
                          none);
            for (const int32_t entry : f.packed.map(head))
                moved += entry >= 2 * static_cast<int32_t>(f.packed.k.shape[1]);
        }
    }
    EXPECT_GT(shortfall, 50); // both kinds were tried
    EXPECT_LT(shortfall, 950);
    EXPECT_GT(moved, 100);
}

} // namespace
} // namespace winnow::reference
