// The reference's SlotEdit, SlotCompact and SlotCopy against slot maps worked out by hand.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>

#include "reference_slots.hpp"

namespace winnow::reference {
namespace {

using Map = std::vector<int32_t>;
constexpr int32_t none = free_slot;

class reference_slot_edit : public reference_slots {
protected:
    void edit(SlotEdit::Action action, std::vector<Segment> segments, int64_t begin, int64_t end, int64_t delta = 0) {
        SlotEdit args;
        args.action = action;
        args.segments = std::move(segments);
        args.begin = begin;
        args.end = end;
        args.delta = delta;
        device_.launch(args);
    }
};

TEST_F(reference_slot_edit, frees_a_range) {
    TestSegment dense({{0, 4, none}, {5, 0, 3}}), packed({{6, 2 | anchor_flag, 3}, {none, 2, 4}});
    edit(SlotEdit::Action::free, {dense, packed}, 2, 5);
    EXPECT_EQ(dense.map(0), (Map{0, none, none}));
    EXPECT_EQ(dense.map(1), (Map{5, 0, none}));
    EXPECT_EQ(packed.map(0), (Map{6, none, none}));
    EXPECT_EQ(packed.map(1), (Map{none, none, none}));
    edit(SlotEdit::Action::free, {dense, packed}, 5, 7);
    EXPECT_EQ(dense.map(0), (Map{0, none, none}));
    EXPECT_EQ(dense.map(1), (Map{none, 0, none}));
    EXPECT_EQ(packed.map(0), (Map{none, none, none}));
}

TEST_F(reference_slot_edit, shifts_numbers_and_keeps_anchors) {
    TestSegment segment({{0, 4, 7 | anchor_flag}, {none, 9, 3}});
    edit(SlotEdit::Action::shift, {segment}, 4, 9, -2);
    EXPECT_EQ(segment.map(0), (Map{0, 2, 5 | anchor_flag}));
    EXPECT_EQ(segment.map(1), (Map{none, 9, 3}));
    edit(SlotEdit::Action::shift, {segment}, 5, 10, 100);
    EXPECT_EQ(segment.map(0), (Map{0, 2, 105 | anchor_flag}));
    EXPECT_EQ(segment.map(1), (Map{none, 109, 3}));
}

TEST_F(reference_slot_edit, anchors_a_range) {
    TestSegment segment({{0, 4, 7 | anchor_flag}, {none, 9, 3}});
    edit(SlotEdit::Action::anchor, {segment}, 3, 8);
    EXPECT_EQ(segment.map(0), (Map{0, 4 | anchor_flag, 7 | anchor_flag}));
    EXPECT_EQ(segment.map(1), (Map{none, 9, 3 | anchor_flag}));
    edit(SlotEdit::Action::anchor, {segment}, 9, 10);
    EXPECT_EQ(segment.map(0), (Map{0, 4 | anchor_flag, 7 | anchor_flag}));
    EXPECT_EQ(segment.map(1), (Map{none, 9 | anchor_flag, 3 | anchor_flag}));
    segment.expect_rows();
}

class reference_slot_compact : public reference_slots {
protected:
    void SetUp() override {
        for (int64_t slot = 0; slot < 7; ++slot) segment_.importance.at(0, 0, slot) = static_cast<float>(slot);
    }

    // Expected: the map of the first head, and the importances of its live slots.
    void compact(bool keeps_order, const Map& first, const std::vector<float>& importance) {
        device_.launch(SlotCompact{.segment = segment_, .head_state = state_, .keeps_order = keeps_order});
        EXPECT_EQ(segment_.map(0), first);
        EXPECT_EQ(segment_.map(1), (Map{none, none, none, none, none, none, none}));
        EXPECT_EQ(segment_.map(2), (Map{1, 2, 3, 4, 5, 6, 7}));
        EXPECT_EQ(segment_.map(3), (Map{8, 3, none, none, none, none, none}));
        segment_.expect_rows();
        const std::vector<float> kept = segment_.importance.row(0);
        EXPECT_EQ((std::vector<float>(kept.begin(), kept.begin() + 4)), importance);
        for (int64_t head = 0; head < 4; ++head)
            EXPECT_EQ(state_.row(head), (Map{std::array{4, 0, 7, 2}[static_cast<size_t>(head)], 50, 50, 50}));
    }

    TestSegment segment_{{{4, none, 2, none, 9 | anchor_flag, none, 7},
                          {none, none, none, none, none, none, none},
                          {1, 2, 3, 4, 5, 6, 7},
                          {none, none, none, none, none, 8, 3}}};
    Ints state_{{4, 1, 4}, 50};
};

TEST_F(reference_slot_compact, live_slots_fill_the_free_ones_before_them) {
    compact(false, {4, 9 | anchor_flag, 2, 7, none, none, none}, {0, 4, 2, 6});
}

TEST_F(reference_slot_compact, live_slots_may_keep_their_order) {
    compact(true, {4, 2, 9 | anchor_flag, 7, none, none, none}, {0, 2, 4, 6});
}

using reference_slot_copy = reference_slots;

TEST_F(reference_slot_copy, takes_rows_map_importance_and_means) {
    TestSegment from({{4, none}, {1 | anchor_flag, 2}}), to({{9, 8, 7}, {9, 8, 7}});
    from.importance.values = {1, 2, 3, 4};
    from.k_mean = from.v_mean = Floats({2, 1, 2}, 0);
    to.k_mean = to.v_mean = Floats({2, 1, 2}, 5);
    device_.launch(SlotCopy{.from = from, .to = to});
    EXPECT_EQ(to.map(0), (Map{4, none, none}));
    EXPECT_EQ(to.map(1), (Map{1 | anchor_flag, 2, none}));
    EXPECT_EQ(to.importance.row(1)[1], 4);
    to.expect_rows();
}

// Packed rows are moved and copied as they are: converting them again would lose some of what they hold.
TEST_F(reference_slot_copy, packed_rows_keep_their_bits) {
    constexpr int64_t size = 32;
    const auto bytes = static_cast<int64_t>(row_bytes(Type::turbo3, size));
    std::vector<std::byte> rows(static_cast<size_t>(3 * bytes)), copied(static_cast<size_t>(3 * bytes));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<std::byte>(i * 37 + 11);
    auto packed = [&](std::vector<std::byte>& memory) {
        Tensor tensor;
        tensor.type = Type::turbo3;
        tensor.data = memory.data();
        tensor.shape = {1, 1, 3, size};
        tensor.stride = {3 * bytes, 3 * bytes, bytes, 0};
        return tensor;
    };
    Ints tokens({1, 1, 3}, 6), copied_tokens({1, 1, 3}, none), state({1, 1, 4}, 0);
    device_.launch(SlotCopy{.from = {packed(rows), packed(rows), tokens, {}, {}, {}},
                            .to = {packed(copied), packed(copied), copied_tokens, {}, {}, {}}});
    EXPECT_EQ(copied, rows);
    copied_tokens.values = {6, none, 7};
    device_.launch(
        SlotCompact{.segment = {packed(copied), packed(copied), copied_tokens, {}, {}, {}}, .head_state = state});
    EXPECT_EQ(copied_tokens.values, (Map{6, 7, none}));
    EXPECT_EQ(std::memcmp(&copied[static_cast<size_t>(bytes)], &rows[static_cast<size_t>(2 * bytes)],
                          static_cast<size_t>(bytes)),
              0);
}

TEST_F(reference_slot_edit, a_mark_is_complete_and_no_launch) {
    winnow_stats stats{};
    TestSegment segment({{1, 2}});
    edit(SlotEdit::Action::free, {segment}, 0, 1);
    const std::unique_ptr<Event> mark = device_.mark();
    ASSERT_NE(mark, nullptr);
    mark->wait();
    device_.stats(stats);
    EXPECT_EQ(stats.kernel_launches, 1u);
}

} // namespace
} // namespace winnow::reference
