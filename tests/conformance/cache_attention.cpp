// Softmax over resident tokens.
#include "cache_attention.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace winnow::conformance {
namespace {

constexpr double unit = 0x1p-24;
constexpr double tolerance = 1e-5;
constexpr double smallest = 0x1p-120;

Weight weigh(const std::vector<double>& q, double q_norm, int64_t position, const VisibleRow& seen,
             const QueryOptions& options) {
    const StoredRow& row = *seen.row;
    double dot = 0, slack = 0;
    const size_t size = q.size();
    const double* query = q.data();
    const float* key = row.k.data();
#pragma omp simd reduction(+ : dot)
    for (size_t d = 0; d < size; ++d) dot += query[d] * static_cast<double>(key[d]);
    if (!row.k_slack.empty()) {
        const float* of_key = row.k_slack.data();
#pragma omp simd reduction(+ : slack)
        for (size_t d = 0; d < size; ++d) slack += std::fabs(query[d]) * static_cast<double>(of_key[d]);
    }
    double score = options.scale * dot;
    if (options.softcap != 0) score = options.softcap * std::tanh(score / options.softcap);
    const double alibi = options.alibi_slope * static_cast<double>(seen.position - position);
    score += seen.bias + alibi;
    Weight weight{};
    weight.score = score;
    weight.delta =
        unit * (4 + static_cast<double>(q.size()) / 16) * std::fabs(options.scale) * q_norm * row.k_size +
        std::fabs(options.scale) * slack +
        unit * (16 * std::fabs(options.softcap) + 4 * (std::fabs(seen.bias) + std::fabs(alibi) + std::fabs(score)));
    return weight;
}

// to += by * each of row.
void add(std::vector<double>& to, double by, const std::vector<float>& row) {
    double* sum = to.data();
    const float* from = row.data();
    const size_t size = to.size();
#pragma omp simd
    for (size_t d = 0; d < size; ++d) sum[d] += by * static_cast<double>(from[d]);
}

} // namespace

QueryResult attend(const std::vector<double>& q, int64_t position, const std::vector<VisibleRow>& rows, size_t v_size,
                   const QueryOptions& options) {
    QueryResult result;
    result.out.assign(v_size, 0);
    result.bound.assign(v_size, smallest);
    double q_norm = 0;
    for (const double each : q) q_norm += each * each;
    q_norm = std::sqrt(q_norm);
    double maximum = options.head_sink.value_or(-std::numeric_limits<double>::infinity());
    for (const VisibleRow& row : rows) {
        result.weights.push_back(weigh(q, q_norm, position, row, options));
        maximum = std::max(maximum, result.weights.back().score);
    }
    if (rows.empty()) return result;
    double sum = options.head_sink ? std::exp(*options.head_sink - maximum) : 0;
    for (const Weight& weight : result.weights) sum += std::exp(weight.score - maximum);
    double sum_error = tolerance;
    std::vector<double> dp(rows.size());
    for (size_t j = 0; j < rows.size(); ++j) {
        Weight& weight = result.weights[j];
        weight.p = std::exp(weight.score - maximum) / sum;
        dp[j] = weight.p * std::expm1(std::min(weight.delta, 60.0));
        sum_error += dp[j];
    }
    std::vector<double> weighted(v_size, 0);
    for (size_t j = 0; j < rows.size(); ++j) {
        const StoredRow& row = *rows[j].row;
        Weight& weight = result.weights[j];
        weight.p_high = (weight.p + dp[j]) * (1 + sum_error);
        weight.p_low = std::max(weight.p * std::exp(-weight.delta) * (1 - sum_error), 0.0);
        add(result.out, weight.p, row.v);
        add(weighted, weight.p, row.v_size);
        add(result.bound, dp[j], row.v_size);
        if (weight.p_low < options.v_threshold * (1 + tolerance)) add(result.bound, weight.p_high, row.v_size);
        if (!row.v_slack.empty()) add(result.bound, weight.p_high, row.v_slack);
        if (!row.v_group.empty()) add(result.bound, 8 * unit * weight.p, row.v_group);
    }
    for (size_t d = 0; d < v_size; ++d) result.bound[d] += sum_error * weighted[d];
    return result;
}

} // namespace winnow::conformance
