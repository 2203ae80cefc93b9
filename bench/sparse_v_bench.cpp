// Sparse V: what a threshold under which values are passed over saves, and what it costs in accuracy.
//
// Whether anything can be passed over depends on how peaked the probabilities are, so the inputs are made to look like
// a trained model's. Queries of a KV head are half a direction of their own and half one that they share; keys are
// normal. The logits are then normal with a standard deviation of `spread`. The first 4 keys are sinks: they lie along
// the shared direction, 8 higher in the logit than the others. So do recent keys: 4 higher at the end, half of that
// each 64 keys back. "eff. keys" is how many equally probable keys have the entropy that the rows have.
#include <cmath>
#include <numeric>
#include <random>

#include "attention.hpp"

namespace winnow::bench {
namespace {

constexpr float spread = 2.0f;
constexpr float sink_logit = 8.0f;
constexpr int64_t sinks = 4;
constexpr float recent_logit = 4.0f;
constexpr float recent_half_life = 64.0f;

std::vector<float> normal_numbers(std::minstd_rand& random, int64_t count) {
    std::normal_distribution<float> distribution;
    std::vector<float> numbers(static_cast<size_t>(count));
    for (float& x : numbers) x = distribution(random);
    return numbers;
}

// q: [q_heads][head_size], k: [kv_heads][kv_len][head_size]
void make_peaked(const AttentionSizes& sizes, float* q, float* k) {
    std::minstd_rand random(1);
    const int64_t n = sizes.head_size;
    for (int64_t head = 0; head < sizes.kv_heads; ++head) {
        const std::vector<float> shared = normal_numbers(random, n);
        const float square = std::inner_product(shared.begin(), shared.end(), shared.begin(), 0.0f);
        for (int64_t r = 0; r < sizes.group; ++r) {
            const std::vector<float> own = normal_numbers(random, n);
            for (int64_t i = 0; i < n; ++i) *q++ = spread * std::sqrt(0.5f) * (shared[i] + own[i]);
        }
        // A key moved by this much along the shared direction has a logit higher by 1.
        const float one = std::sqrt(static_cast<float>(n)) / (spread * std::sqrt(0.5f) * square);
        for (int64_t key = 0; key < sizes.kv_len; ++key) {
            const std::vector<float> row = normal_numbers(random, n);
            const float age = static_cast<float>(sizes.kv_len - 1 - key);
            const float logit = key < sinks ? sink_logit : recent_logit * std::exp2(-age / recent_half_life);
            for (int64_t i = 0; i < n; ++i) *k++ = row[i] + logit * one * shared[i];
        }
    }
}

// How many equally probable keys have the entropy that a row has, as the mean over rows of the logarithm.
double effective_keys(const float* probabilities, int64_t rows, int64_t keys) {
    double sum = 0;
    for (int64_t i = 0; i < rows * keys; ++i) {
        const double p = probabilities[i];
        if (p > 0) sum -= p * std::log(p);
    }
    return std::exp(sum / static_cast<double>(rows));
}

double relative_error(const std::vector<float>& out, const std::vector<float>& expected) {
    double difference = 0, size = 0;
    for (size_t i = 0; i < out.size(); ++i) {
        difference += std::pow(static_cast<double>(out[i]) - expected[i], 2);
        size += std::pow(static_cast<double>(expected[i]), 2);
    }
    return std::sqrt(difference / size);
}

class PeakedAttention {
public:
    PeakedAttention(Backend& backend, const AttentionSizes& sizes)
        : backend_(backend), problem_(backend, sizes), skipped_(backend, WINNOW_TYPE_I32, sizes.q_heads()),
          skipped_tensor_(skipped_.tensor(1, sizes.q_heads(), 1, 1)) {
        Memory rows(backend, WINNOW_TYPE_F32, sizes.kv_heads * sizes.kv_len * sizes.head_size);
        make_peaked(sizes, static_cast<float*>(problem_.q().data()), static_cast<float*>(rows.data()));
        Memory indices(backend, WINNOW_TYPE_I32, sizes.kv_len);
        std::iota(static_cast<int32_t*>(indices.data()), static_cast<int32_t*>(indices.data()) + sizes.kv_len, 0);
        const winnow_tensor source = rows.tensor(1, sizes.kv_heads, sizes.kv_len, sizes.head_size);
        const winnow_tensor index = indices.tensor(1, 1, 1, sizes.kv_len);
        winnow_kv_append_desc append{};
        append.struct_size = sizeof append;
        append.k_src = &source;
        append.k_cache = problem_.with(WINNOW_SCORES_NONE).k;
        append.k_row_indices = &index;
        backend.run(append);
    }

    void run(float threshold) {
        winnow_sdpa_desc desc = problem_.with(WINNOW_SCORES_NONE);
        desc.v_threshold = threshold;
        desc.v_rows_skipped = &skipped_tensor_;
        backend_.run(desc);
    }

    double effective_keys() {
        backend_.run(problem_.with(WINNOW_SCORES_PROBS));
        return bench::effective_keys(static_cast<const float*>(problem_.scores().data()), sizes().q_heads(),
                                     sizes().kv_len);
    }

    std::vector<float> out() const {
        const float* begin = static_cast<const float*>(problem_.out().data());
        return {begin, begin + sizes().q_heads() * sizes().head_size};
    }

    double skipped_share() const {
        const int32_t* begin = static_cast<const int32_t*>(skipped_.data());
        const int64_t sum = std::accumulate(begin, begin + sizes().q_heads(), int64_t{0});
        return static_cast<double>(sum) / static_cast<double>(sizes().q_heads() * sizes().kv_len);
    }

private:
    const AttentionSizes& sizes() const { return problem_.sizes(); }

    Backend& backend_;
    Attention problem_;
    Memory skipped_;
    winnow_tensor skipped_tensor_;
};

nlohmann::json measure(const Options& options, Backend& backend, const AttentionSizes& sizes) {
    const std::vector<float> thresholds{0, 1e-6f, 1e-5f, 1e-4f, 1e-3f, 1e-2f};
    PeakedAttention problem(backend, sizes);
    const double effective = problem.effective_keys();
    std::vector<std::function<void()>> turns;
    turns.reserve(thresholds.size());
    for (const float threshold : thresholds) turns.push_back([&problem, threshold] { problem.run(threshold); });
    const std::vector<double> seconds = take_turns(turns, options.seconds * 2);

    nlohmann::json rows = nlohmann::json::array();
    std::vector<float> expected;
    for (size_t i = 0; i < thresholds.size(); ++i) {
        problem.run(thresholds[i]);
        const std::vector<float> out = problem.out();
        if (i == 0) expected = out;
        const double error = relative_error(out, expected);
        const double share = problem.skipped_share();
        char threshold[16];
        std::snprintf(threshold, sizeof threshold, "%g", static_cast<double>(thresholds[i]));
        char error_text[16];
        std::snprintf(error_text, sizeof error_text, "%.1e", error);
        print_row({label_of(sizes), threshold, fixed(effective, 0), fixed(share * 100, 1),
                   fixed(seconds[0] / seconds[i], 2), error_text});
        rows.push_back({{"k_type", type_name(sizes.k_type)},
                        {"v_type", type_name(sizes.v_type)},
                        {"group", sizes.group},
                        {"head_size", sizes.head_size},
                        {"keys", sizes.kv_len},
                        {"threshold", thresholds[i]},
                        {"effective_keys", effective},
                        {"skipped_share", share},
                        {"seconds", seconds[i]},
                        {"times_threshold_0", seconds[0] / seconds[i]},
                        {"relative_error", error}});
    }
    return rows;
}

} // namespace

nlohmann::json bench_sparse_v(const Options& options, Backend& backend) {
    nlohmann::json rows = nlohmann::json::array();
    print_row({"sparse_v: one query token, peaked", "threshold", "eff. keys", "skipped %", "x thresh. 0", "error"});
    for (const AttentionSizes& sizes : all_sizes_of(options))
        for (const nlohmann::json& row : measure(options, backend, sizes)) rows.push_back(row);
    return rows;
}

} // namespace winnow::bench
