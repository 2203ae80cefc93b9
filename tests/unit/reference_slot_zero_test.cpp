// The reference's SlotZero against numbers worked out by hand.
#include "reference_slots.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace winnow::reference {
namespace {

using ZeroRow = std::vector<float>;

class reference_slot_zero : public reference_slots {
protected:
    void zero(std::vector<Segment> segments, double k_scale, double v_scale, int64_t sink = 0, Tensor positions = {}) {
        device_.launch(SlotZero{std::move(segments), k_scale, v_scale, sink, positions});
    }
};

// ZeroRows of one head; token ids in the slot map, and rows of V that are those of K times ten.
struct ZeroRows {
    ZeroRows(std::vector<int32_t> map, const std::vector<ZeroRow>& rows) : segment({std::move(map)}) {
        for (size_t slot = 0; slot < rows.size(); ++slot) {
            segment.k.set_row(0, static_cast<int64_t>(slot), rows[slot]);
            segment.v.set_row(0, static_cast<int64_t>(slot), {10 * rows[slot][0], 10 * rows[slot][1]});
        }
    }
    ZeroRow k(int64_t slot) { return segment.k.row(0, slot); }
    ZeroRow v(int64_t slot) { return segment.v.row(0, slot); }
    TestSegment segment;
};

// |x| are 1, 2, 3, 6: mu 3, sigma sqrt(3.5) = 1.87, so that mu counts; a scale of .5 gives 1.5.
TEST_F(reference_slot_zero, elements_below_the_mean_times_the_scale_become_zero) {
    ZeroRows rows({5, 6}, {{1, -2}, {-3, 6}});
    zero({rows.segment}, .5, 0);
    EXPECT_EQ(rows.k(0), (ZeroRow{0, -2}));
    EXPECT_EQ(rows.k(1), (ZeroRow{-3, 6}));
    EXPECT_EQ(rows.v(0), (ZeroRow{10, -20})); // a scale of 0
    zero({rows.segment}, 0, 1);
    EXPECT_EQ(rows.v(0), (ZeroRow{0, 0}));
    EXPECT_EQ(rows.v(1), (ZeroRow{-30, 60})); // the threshold is 30, and what is not below it stays
}

// Seven of 1 and one of 41: mu 6, sigma 13.2, and half of it is 6.61. Times .2 it is 1.32; mu alone would give 1.2, and
// times .16 it is 1.058, where mu alone gives .96.
TEST_F(reference_slot_zero, where_sigma_is_large_half_of_it_counts) {
    ZeroRows rows({5, 6, 7, 8}, {{1, 1}, {1, 1}, {1, 1}, {1, 41}});
    zero({rows.segment}, .16, .15);
    EXPECT_EQ(rows.k(0), (ZeroRow{0, 0}));
    EXPECT_EQ(rows.k(3), (ZeroRow{0, 41}));
    EXPECT_EQ(rows.v(0), (ZeroRow{10, 10})); // half of sigma times .15 is .99 times what they are
}

TEST_F(reference_slot_zero, sinks_and_free_slots_neither_count_nor_change) {
    ZeroRows rows({3, free_slot, 4 | anchor_flag, 5}, {{.1f, 900}, {.1f, 900}, {1, -2}, {-3, 6}});
    zero({rows.segment}, .5, 0, 4);
    EXPECT_EQ(rows.k(0), (ZeroRow{.1f, 900}));
    EXPECT_EQ(rows.k(1), (ZeroRow{.1f, 900}));
    EXPECT_EQ(rows.k(2), (ZeroRow{0, -2})); // an anchor is as any other
    EXPECT_EQ(rows.k(3), (ZeroRow{-3, 6}));
}

TEST_F(reference_slot_zero, positions_say_who_is_a_sink) {
    ZeroRows rows({0, 1}, {{1, -2}, {-3, 6}});
    Ints positions({1, 1, 2}, 0);
    positions.set_row(0, 0, {100, 3});
    zero({rows.segment}, 1, 0, 4, positions);
    EXPECT_EQ(rows.k(0), (ZeroRow{0, -2})); // mu is 1.5
    EXPECT_EQ(rows.k(1), (ZeroRow{-3, 6}));
}

TEST_F(reference_slot_zero, the_threshold_is_of_all_segments_and_of_each_head) {
    ZeroRows a({5}, {{1, -2}}), b({6}, {{-3, 6}});
    zero({a.segment, {}, b.segment}, .5, 0);
    EXPECT_EQ(a.k(0), (ZeroRow{0, -2}));
    EXPECT_EQ(b.k(0), (ZeroRow{-3, 6}));
    TestSegment heads({{1, 2}, {1, 2}}); // keys {1, 1}, {2, 2} and {1, 11}, {2, 12}: mu 1.5 and 6.5
    zero({heads}, .9, 0);
    EXPECT_EQ(heads.k.row(0, 0), (ZeroRow{0, 0}));
    EXPECT_EQ(heads.k.row(0, 1), (ZeroRow{2, 2}));
    EXPECT_EQ(heads.k.row(1, 0), (ZeroRow{0, 11}));
    EXPECT_EQ(heads.k.row(1, 1), (ZeroRow{0, 12}));
}

TEST_F(reference_slot_zero, what_is_not_finite_counts_nowhere_and_stays) {
    ZeroRows rows({5, 6, 7}, {{1, -2}, {-3, 6}, {not_a_number, -infinity}});
    zero({rows.segment}, .5, 1000);
    EXPECT_EQ(rows.k(0), (ZeroRow{0, -2}));
    EXPECT_EQ(rows.k(1), (ZeroRow{-3, 6}));
    EXPECT_TRUE(std::isnan(rows.k(2)[0]));
    EXPECT_EQ(rows.k(2)[1], -infinity);
    EXPECT_EQ(rows.v(1), (ZeroRow{0, 0}));
    EXPECT_EQ(rows.v(2)[1], -infinity);
    ZeroRows zeros({5}, {{0, -0.0f}});
    zero({zeros.segment}, 1, 1);
    EXPECT_FALSE(std::signbit(zeros.k(0)[0]));
    EXPECT_TRUE(std::signbit(zeros.k(0)[1])) << "what is zero is not written";
}

} // namespace
} // namespace winnow::reference
