// Truths about attention with slot positions that need no second implementation.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "closed_form_attention.hpp"

namespace winnow::conformance {
namespace {

class sdpa_slots_closed_form : public sdpa_closed_form {};
INSTANTIATE_TEST_SUITE_P(sdpa, sdpa_slots_closed_form, testing::Values(1, 5, 19), query_name);

// Keys in another order, another one for each head: with their positions beside them nothing is different.
TEST_P(sdpa_slots_closed_form, positions_follow_their_keys) {
    Attention forward(GetParam(), 300), shuffled(GetParam(), 300);
    auto position = [](int64_t head, int64_t key) { return (key * (head == 0 ? 7 : 11) + 5) % 300; };
    for (TestTensor Attention::*tensor : {&Attention::k, &Attention::v})
        (shuffled.*tensor).each([&](const Index& at) {
            (shuffled.*tensor).set(at, (forward.*tensor).get({0, at[1], position(at[1], at[2]), at[3]}));
        });
    shuffled.set_slots(position);
    for (Attention* a : {&forward, &shuffled}) {
        a->desc.is_causal = 1;
        a->desc.q_offset = 200;
        a->desc.window_left = 150;
        a->set_alibi();
        a->run();
    }
    forward.each_row([&](int64_t head, int64_t token) {
        forward.expect_row(head, token, [&](int64_t d) { return shuffled.out.get({0, head, token, d}); });
        const int64_t kv_head = forward.kv_head(head);
        for (int64_t key = 0; key < 300; ++key)
            EXPECT_NEAR(shuffled.scores.get({0, head, token, key}),
                        forward.scores.get({0, head, token, position(kv_head, key)}), tolerance);
    });
}

TEST_P(sdpa_slots_closed_form, free_slots_are_not_seen) {
    Attention a(GetParam());
    a.make_keys_equal();
    a.set_slots([](int64_t head, int64_t key) { return key % 2 == head ? -1 - key : key; });
    a.v.each([&](const Index& at) {
        if (at[2] % 2 == at[1]) a.v.set(at, std::numeric_limits<double>::quiet_NaN());
    });
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        const int64_t first = 1 - a.kv_head(head); // of every second key
        const int64_t count = (a.kv_len - first + 1) / 2;
        a.expect_row(head, token, [&](int64_t d) {
            double sum = 0;
            for (int64_t key = first; key < a.kv_len; key += 2) sum += a.v_at(head, key, d);
            return sum / static_cast<double>(count);
        });
        for (int64_t key = 0; key < a.kv_len; ++key)
            EXPECT_NEAR(a.scores.get({0, head, token, key}), key % 2 == first ? 1 / static_cast<double>(count) : 0,
                        tolerance);
    });
}

TEST_P(sdpa_slots_closed_form, nothing_but_free_slots_gives_zeros) {
    Attention a(GetParam());
    a.desc.scores_mode = WINNOW_SCORES_BIASED;
    a.set_slots([](int64_t, int64_t) { return -1; });
    a.set_sinks(1);
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        for (int64_t d = 0; d < a.v_size; ++d) EXPECT_EQ(a.out.get({0, head, token, d}), 0);
        for (int64_t key = 0; key < a.kv_len; ++key) EXPECT_EQ(a.scores.get({0, head, token, key}), -infinity);
        EXPECT_EQ(a.stats.get({0, head, token, 1}), 0);
    });
}

// The newest key first, and every odd position missing: causality and the window count positions, not keys.
TEST_P(sdpa_slots_closed_form, a_window_counts_positions) {
    Attention a(GetParam());
    a.make_keys_equal();
    a.set_slots([&](int64_t, int64_t key) { return 2 * (36 - key); });
    a.desc.is_causal = 1;
    a.desc.q_offset = 20;
    a.desc.window_left = 7;
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        const int64_t p = 20 + token, newest = p / 2, oldest = (p - 7) / 2 + 1; // halves of positions
        a.expect_row(head, token, [&](int64_t d) { return a.mean_of_v(head, 36 - newest, 37 - oldest, d); });
    });
}

// Columns 0 to 7 of which the even ones show: of the positions 3, 4, 5, ... that is 4 and 6, keys 1 and 3.
TEST_P(sdpa_slots_closed_form, the_column_of_the_mask_is_the_position) {
    for (const uint32_t type : {WINNOW_TYPE_BOOL, WINNOW_TYPE_F16, WINNOW_TYPE_F32}) {
        Attention a(GetParam());
        a.make_keys_equal();
        a.set_slots([](int64_t, int64_t key) { return key + 3; });
        a.mask = TestTensor(type, {1, 1, 1, 8});
        a.mask.each([&](const Index& at) {
            const bool shows = at[3] % 2 == 0;
            a.mask.set(at, type == WINNOW_TYPE_BOOL ? (shows ? 1 : 0)
                                                    : (shows ? static_cast<double>(at[3]) / 8 : -infinity));
        });
        a.run();
        const double ratio = type == WINNOW_TYPE_BOOL ? 1 : std::exp(2.0 / 8);
        a.each_row([&](int64_t head, int64_t token) {
            a.expect_row(head, token,
                         [&](int64_t d) { return (a.v_at(head, 1, d) + ratio * a.v_at(head, 3, d)) / (1 + ratio); });
        });
    }
}

} // namespace
} // namespace winnow::conformance
