// The attention of which closed forms are known.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "session.hpp"
#include "test_tensor.hpp"

namespace winnow::conformance {

inline constexpr double infinity = std::numeric_limits<double>::infinity();
inline constexpr double tolerance = 2e-5;

// A small attention of which each test sets what it is about: 1 batch entry, 4 query heads on 2 KV heads, F32.
struct Attention {
    int64_t q_heads = 4, kv_heads = 2, q_len = 1, kv_len = 37, head_size = 32, v_size = 48;
    TestTensor q, k, v, out, sink, mask, alibi, slots, scores, stats;
    winnow_sdpa_desc desc{};

    explicit Attention(int64_t queries = 1, int64_t keys = 37) : q_len(queries), kv_len(keys) {
        q = TestTensor(WINNOW_TYPE_F32, {1, q_heads, q_len, head_size});
        k = TestTensor(WINNOW_TYPE_F32, {1, kv_heads, kv_len, head_size});
        v = TestTensor(WINNOW_TYPE_F32, {1, kv_heads, kv_len, v_size});
        out = TestTensor(WINNOW_TYPE_F32, {1, q_heads, q_len, v_size});
        scores = TestTensor(WINNOW_TYPE_F32, {1, q_heads, q_len, kv_len});
        stats = TestTensor(WINNOW_TYPE_F32, {1, q_heads, q_len, 2});
        // Smooth and bounded, and no two elements of a row alike.
        q.each([&](const Index& at) { q.set(at, std::sin(static_cast<double>(1 + at[1] + 3 * at[2] + 7 * at[3]))); });
        k.each([&](const Index& at) { k.set(at, std::cos(static_cast<double>(2 + 5 * at[1] + at[2] + 3 * at[3]))); });
        v.each([&](const Index& at) { v.set(at, value(at)); });
        desc.struct_size = sizeof desc;
        desc.scores_mode = WINNOW_SCORES_PROBS;
    }

    static double value(const Index& at) { return std::sin(static_cast<double>(3 + 11 * at[1] + 2 * at[2] + at[3])); }
    int64_t kv_head(int64_t head) const { return head / (q_heads / kv_heads); }
    double v_at(int64_t head, int64_t key, int64_t d) const { return v.get({0, kv_head(head), key, d}); }
    double dot(int64_t head, int64_t token, int64_t key) const {
        double sum = 0;
        for (int64_t d = 0; d < head_size; ++d) sum += q.get({0, head, token, d}) * k.get({0, kv_head(head), key, d});
        return sum;
    }
    double default_scale() const { return 1 / std::sqrt(static_cast<double>(head_size)); }

    void set_sinks(double logit) {
        sink = TestTensor(WINNOW_TYPE_F32, {1, 1, 1, q_heads});
        sink.each([&](const Index& at) { sink.set(at, logit); });
    }

    void run() {
        for (TestTensor* tensor : {&q, &k, &v, &out, &sink, &mask, &alibi, &slots, &scores, &stats})
            tensor->bind(subject());
        desc.q = q.view();
        desc.k = k.view();
        desc.v = v.view();
        desc.out = out.view();
        desc.head_sink = sink.view();
        desc.attn_mask = mask.view();
        desc.alibi_slopes = alibi.view();
        desc.slot_positions = slots.view();
        desc.scores_out = scores.view();
        desc.row_stats = stats.view();
        ASSERT_EQ(subject().run(desc), WINNOW_OK) << subject().message();
        ASSERT_EQ(subject().api().finish(subject().context()), WINNOW_OK) << subject().message();
    }

    void each_row(const std::function<void(int64_t head, int64_t token)>& f) const {
        for (int64_t head = 0; head < q_heads; ++head)
            for (int64_t token = 0; token < q_len; ++token) f(head, token);
    }
    void expect_row(int64_t head, int64_t token, const std::function<double(int64_t d)>& want) const {
        for (int64_t d = 0; d < v_size; ++d)
            EXPECT_NEAR(out.get({0, head, token, d}), want(d), tolerance)
                << "head " << head << ", token " << token << ", element " << d;
    }
    double mean_of_v(int64_t head, int64_t first, int64_t last, int64_t d) const { // keys [first, last)
        double sum = 0;
        for (int64_t key = first; key < last; ++key) sum += v_at(head, key, d);
        return sum / static_cast<double>(last - first);
    }
    void set_alibi() {
        alibi = TestTensor(WINNOW_TYPE_F32, {1, 1, 1, q_heads});
        alibi.each([&](const Index& at) { alibi.set(at, std::ldexp(1, -static_cast<int>(at[3]))); });
    }
    void set_slots(const std::function<int64_t(int64_t kv_head, int64_t key)>& position) {
        slots = TestTensor(WINNOW_TYPE_I32, {1, kv_heads, 1, kv_len});
        slots.each([&](const Index& at) { slots.set(at, static_cast<double>(position(at[1], at[3]))); });
    }
    void make_keys_equal() {
        k.each([&](const Index& at) { k.set(at, std::cos(static_cast<double>(at[1] + at[3]))); });
    }
};

// Cases for one query token and for many, which may be different kernels.
class sdpa_closed_form : public testing::TestWithParam<int64_t> {};
inline std::string query_name(const testing::TestParamInfo<int64_t>& info) {
    return "q_len_" + std::to_string(info.param);
}

} // namespace winnow::conformance
