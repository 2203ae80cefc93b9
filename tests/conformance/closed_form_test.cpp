// Truths that need no second implementation: what attention must give where the answer is known on paper. They hold
// the reference to account as much as any other backend.
#include <gtest/gtest.h>

#include <cmath>

#include "closed_form_attention.hpp"
#include "elements.hpp"

namespace winnow::conformance {
namespace {

INSTANTIATE_TEST_SUITE_P(sdpa, sdpa_closed_form, testing::Values(1, 5, 19), query_name);

TEST_P(sdpa_closed_form, equal_keys_give_the_mean_of_the_values) {
    Attention a(GetParam());
    a.make_keys_equal();
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        a.expect_row(head, token, [&](int64_t d) { return a.mean_of_v(head, 0, a.kv_len, d); });
        for (int64_t key = 0; key < a.kv_len; ++key)
            EXPECT_NEAR(a.scores.get({0, head, token, key}), 1 / static_cast<double>(a.kv_len), tolerance);
    });
}

TEST_P(sdpa_closed_form, one_key_gives_its_value) {
    Attention a(GetParam(), 1);
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        a.expect_row(head, token, [&](int64_t d) { return a.v_at(head, 0, d); });
        EXPECT_NEAR(a.stats.get({0, head, token, 0}), a.dot(head, token, 0) * a.default_scale(), tolerance);
        EXPECT_NEAR(a.stats.get({0, head, token, 1}), 1, tolerance);
    });
}

TEST_P(sdpa_closed_form, a_far_larger_logit_takes_all) {
    Attention a(GetParam());
    const int64_t chosen = 23;
    a.q.each([&](const Index& at) { a.q.set(at, at[3] == 0 ? 1000 : 0); });
    a.k.each([&](const Index& at) { a.k.set(at, at[3] == 0 && at[2] == chosen ? 60 : 0); });
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        a.expect_row(head, token, [&](int64_t d) { return a.v_at(head, chosen, d); });
        EXPECT_NEAR(a.scores.get({0, head, token, chosen}), 1, tolerance);
        EXPECT_NEAR(a.scores.get({0, head, token, 0}), 0, tolerance);
    });
}

TEST_P(sdpa_closed_form, values_may_be_told_apart_by_their_probability) {
    // Logits ln 1, ln 2, ln 3, ...: probabilities 1/n, 2/n, 3/n, ...
    Attention a(GetParam(), 9);
    a.desc.scale = 1;
    a.q.each([&](const Index& at) { a.q.set(at, at[3] == 1 ? 1 : 0); });
    a.k.each([&](const Index& at) { a.k.set(at, at[3] == 1 ? std::log(static_cast<double>(1 + at[2])) : 0.5); });
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        for (int64_t key = 0; key < 9; ++key)
            EXPECT_NEAR(a.scores.get({0, head, token, key}), static_cast<double>(1 + key) / 45, tolerance);
        a.expect_row(head, token, [&](int64_t d) {
            double sum = 0;
            for (int64_t key = 0; key < 9; ++key) sum += static_cast<double>(1 + key) / 45 * a.v_at(head, key, d);
            return sum;
        });
    });
}

TEST_P(sdpa_closed_form, a_sink_like_the_only_logit_takes_half) {
    Attention a(GetParam(), 1);
    a.q.each([&](const Index& at) { a.q.set(at, at[3] == 0 ? 2 : 0); });
    a.k.each([&](const Index& at) { a.k.set(at, at[3] == 0 ? 3 : 1); });
    a.desc.scale = 0.5f;
    a.set_sinks(3);
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        a.expect_row(head, token, [&](int64_t d) { return a.v_at(head, 0, d) / 2; });
        EXPECT_NEAR(a.scores.get({0, head, token, 0}), 0.5, tolerance);
        EXPECT_NEAR(a.stats.get({0, head, token, 0}), 3, tolerance);
        EXPECT_NEAR(a.stats.get({0, head, token, 1}), 2, tolerance);
    });
}

TEST_P(sdpa_closed_form, probabilities_and_the_sinks_share_sum_to_one) {
    Attention a(GetParam(), 700);
    a.set_sinks(1.5);
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        const double m = a.stats.get({0, head, token, 0}), sum = a.stats.get({0, head, token, 1});
        double total = std::exp(1.5 - m) / sum;
        for (int64_t key = 0; key < a.kv_len; ++key) total += a.scores.get({0, head, token, key});
        EXPECT_NEAR(total, 1, tolerance);
        // The stats' other meaning: m + ln(sum) is the logarithm of the sum of exponentials.
        double exponentials = std::exp(1.5);
        for (int64_t key = 0; key < a.kv_len; ++key)
            exponentials += std::exp(a.dot(head, token, key) * a.default_scale());
        EXPECT_NEAR(m + std::log(sum), std::log(exponentials), tolerance);
    });
}

TEST_P(sdpa_closed_form, softcap_is_a_scaled_tanh) {
    for (const uint32_t mode : {WINNOW_SCORES_RAW, WINNOW_SCORES_SOFTCAPPED}) {
        Attention a(GetParam());
        a.desc.scale = 4;
        a.desc.softcap = 3;
        a.desc.scores_mode = mode;
        a.run();
        a.each_row([&](int64_t head, int64_t token) {
            for (int64_t key = 0; key < a.kv_len; ++key) {
                const double raw = 4 * a.dot(head, token, key);
                const double want = mode == WINNOW_SCORES_RAW ? raw : 3 * std::tanh(raw / 3);
                EXPECT_NEAR(a.scores.get({0, head, token, key}), want, tolerance * (1 + std::fabs(want)));
            }
        });
    }
}

TEST_P(sdpa_closed_form, softcap_comes_before_the_mask) {
    // Capped to at most 1 and then lifted by 50, the third key takes all; capped after the mask it would not.
    Attention a(GetParam());
    a.desc.scale = 100;
    a.desc.softcap = 1;
    a.mask = TestTensor(WINNOW_TYPE_F32, {1, 1, 1, a.kv_len});
    a.mask.each([&](const Index& at) { a.mask.set(at, at[3] == 2 ? 50 : 0); });
    a.run();
    a.each_row(
        [&](int64_t head, int64_t token) { a.expect_row(head, token, [&](int64_t d) { return a.v_at(head, 2, d); }); });
}

TEST_P(sdpa_closed_form, causal_rows_see_the_keys_up_to_their_own) {
    Attention a(GetParam());
    a.make_keys_equal();
    a.desc.is_causal = 1;
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        a.expect_row(head, token, [&](int64_t d) { return a.mean_of_v(head, 0, token + 1, d); });
        EXPECT_EQ(a.scores.get({0, head, token, token + 1}), 0);
    });
}

TEST_P(sdpa_closed_form, a_left_window_of_three_sees_three_keys) {
    Attention a(GetParam());
    a.make_keys_equal();
    a.desc.is_causal = 1;
    a.desc.q_offset = 10;
    a.desc.window_left = 3;
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        a.expect_row(head, token, [&](int64_t d) { return a.mean_of_v(head, 10 + token - 2, 10 + token + 1, d); });
    });
}

TEST_P(sdpa_closed_form, a_right_window_of_two_sees_two_keys_ahead) {
    Attention a(GetParam());
    a.make_keys_equal();
    a.desc.window_left = 1;
    a.desc.window_right = 2;
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        a.expect_row(head, token, [&](int64_t d) { return a.mean_of_v(head, token, token + 3, d); });
    });
}

TEST_P(sdpa_closed_form, what_no_row_sees_gives_zeros) {
    Attention a(GetParam());
    a.desc.is_causal = 1;
    a.desc.q_offset = -100;
    a.desc.scores_mode = WINNOW_SCORES_BIASED;
    a.set_sinks(1);
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        for (int64_t d = 0; d < a.v_size; ++d) EXPECT_EQ(a.out.get({0, head, token, d}), 0);
        for (int64_t key = 0; key < a.kv_len; ++key) EXPECT_EQ(a.scores.get({0, head, token, key}), -infinity);
        EXPECT_EQ(a.stats.get({0, head, token, 0}), -infinity);
        EXPECT_EQ(a.stats.get({0, head, token, 1}), 0);
    });
}

TEST_P(sdpa_closed_form, alibi_is_linear_in_the_distance) {
    Attention a(GetParam());
    a.desc.scores_mode = WINNOW_SCORES_BIASED;
    a.desc.q_offset = 30;
    a.set_alibi();
    a.run();
    a.each_row([&](int64_t head, int64_t token) {
        for (int64_t key = 0; key < a.kv_len; ++key) {
            const double bias = std::ldexp(1, -static_cast<int>(head)) * static_cast<double>(key - 30 - token);
            EXPECT_NEAR(a.scores.get({0, head, token, key}), a.dot(head, token, key) * a.default_scale() + bias,
                        tolerance * (1 + std::fabs(bias)));
        }
    });
}

TEST_P(sdpa_closed_form, each_query_head_reads_its_own_kv_head) {
    Attention a(GetParam());
    a.v.each([&](const Index& at) { a.v.set(at, static_cast<double>(1 + at[1])); });
    a.run();
    a.each_row(
        [&](int64_t head, int64_t token) { a.expect_row(head, token, [&](int64_t) { return head < 2 ? 1.0 : 2.0; }); });
}

TEST_P(sdpa_closed_form, order_of_the_keys_does_not_matter) {
    Attention forward(GetParam(), 300), backward(GetParam(), 300);
    backward.k.each([&](const Index& at) { backward.k.set(at, forward.k.get({0, at[1], 299 - at[2], at[3]})); });
    backward.v.each([&](const Index& at) { backward.v.set(at, forward.v.get({0, at[1], 299 - at[2], at[3]})); });
    forward.run();
    backward.run();
    forward.each_row([&](int64_t head, int64_t token) {
        forward.expect_row(head, token, [&](int64_t d) { return backward.out.get({0, head, token, d}); });
    });
}

// ---- Appending ---------------------------------------------------------------------------------------------------

// Every bit pattern of a 16-bit type, as one source of 64 rows of 1024.
TestTensor every_half(uint32_t type) {
    TestTensor all(type, {1, 1, 64, 1024});
    all.each([&](const Index& at) {
        const auto bits = static_cast<uint16_t>(at[2] * 1024 + at[3]);
        std::memcpy(all.element(at), &bits, 2);
    });
    return all;
}

TestTensor converted(TestTensor& src, uint32_t type) {
    TestTensor cache(type, src.shape()), rows(WINNOW_TYPE_I64, {1, 1, 1, src.shape()[2]});
    rows.each([&](const Index& at) { rows.set(at, static_cast<double>(at[3])); });
    src.bind(subject());
    cache.bind(subject());
    rows.bind(subject());
    winnow_kv_append_desc desc{};
    desc.struct_size = sizeof desc;
    desc.k_src = src.view();
    desc.k_cache = cache.view();
    desc.k_row_indices = rows.view();
    EXPECT_EQ(subject().run(desc), WINNOW_OK) << subject().message();
    EXPECT_EQ(subject().api().finish(subject().context()), WINNOW_OK) << subject().message();
    return cache;
}

// The widened value of every 16-bit number is known exactly, and narrowing it again gives the number back.
void widens_and_narrows(uint32_t type, HalfFormat format) {
    TestTensor halves = every_half(type);
    TestTensor floats = converted(halves, WINNOW_TYPE_F32);
    TestTensor back = converted(floats, type);
    int wrong = 0;
    halves.each([&](const Index& at) {
        const auto bits = static_cast<uint16_t>(at[2] * 1024 + at[3]);
        const double want = from_half(format, bits);
        const double wide = floats.get(at);
        const bool is_right = std::isnan(want) ? std::isnan(wide) && std::isnan(back.get(at))
                                               : wide == want && std::signbit(wide) == std::signbit(want) &&
                                                     std::memcmp(back.element(at), &bits, 2) == 0;
        if (!is_right && ++wrong < 4)
            ADD_FAILURE() << std::hex << "0x" << bits << " widens to " << wide << " instead of " << want
                          << ", and back to " << back.get(at);
    });
    EXPECT_EQ(wrong, 0);
}

TEST(kv_append_closed_form, every_f16_widens_exactly_and_narrows_back) {
    widens_and_narrows(WINNOW_TYPE_F16, f16_format);
}

TEST(kv_append_closed_form, every_bf16_widens_exactly_and_narrows_back) {
    widens_and_narrows(WINNOW_TYPE_BF16, bf16_format);
}

TEST(kv_append_closed_form, f32_rounds_to_the_nearest_f16_and_ties_to_even) {
    const struct {
        double from, to;
    } known[] = {{1 + 0x1p-11, 1},
                 {1 + 0x1.8p-10, 1 + 0x1p-9},
                 {1 + 0x1p-11 + 0x1p-23, 1 + 0x1p-10},
                 {65504, 65504},
                 {65519.99609375, 65504},
                 {65520, infinity},
                 {-70000, -infinity},
                 {0x1p-24, 0x1p-24},
                 {0x1p-25, 0},
                 {0x1.8p-24, 0x1p-23},
                 {0x1.000002p-25, 0x1p-24},
                 {0x1.ff8p-15, 0x1.ff8p-15},
                 {0x1.ffcp-15, 0x1p-14},
                 {-0x1p-149, -0.0},
                 {0x1.ffep15, infinity},
                 {2049, 2048},
                 {2051, 2052},
                 {1e30, infinity}};
    const int64_t count = std::size(known);
    TestTensor floats(WINNOW_TYPE_F32, {1, 1, 1, count});
    for (int64_t at = 0; at < count; ++at) floats.set({0, 0, 0, at}, known[at].from);
    const TestTensor halves = converted(floats, WINNOW_TYPE_F16);
    for (int64_t at = 0; at < count; ++at) {
        const double got = halves.get({0, 0, 0, at});
        EXPECT_EQ(got, known[at].to) << std::hexfloat << known[at].from;
        EXPECT_EQ(std::signbit(got), std::signbit(known[at].to)) << std::hexfloat << known[at].from;
    }
}

TEST(kv_append_closed_form, f32_rounds_to_the_nearest_bf16_and_ties_to_even) {
    const struct {
        double from, to;
    } known[] = {{1 + 0x1p-8, 1},
                 {1 + 0x1.8p-7, 1 + 0x1p-6},
                 {1 + 0x1.02p-8, 1 + 0x1p-7},
                 {0x1.fep127, 0x1.fep127},
                 {0x1.fefffep127, 0x1.fep127},
                 {0x1.ffp127, infinity},
                 {-0x1.fffffep127, -infinity},
                 {0x1p-133, 0x1p-133},
                 {0x1p-134, 0},
                 {0x1.8p-133, 0x1p-132},
                 {257, 256},
                 {259, 260}};
    const int64_t count = std::size(known);
    TestTensor floats(WINNOW_TYPE_F32, {1, 1, 1, count});
    for (int64_t at = 0; at < count; ++at) floats.set({0, 0, 0, at}, known[at].from);
    const TestTensor halves = converted(floats, WINNOW_TYPE_BF16);
    for (int64_t at = 0; at < count; ++at)
        EXPECT_EQ(halves.get({0, 0, 0, at}), known[at].to) << std::hexfloat << known[at].from;
}

} // namespace
} // namespace winnow::conformance
