// Sums over queries and tokens, in double: a text has millions of probabilities.
#include "attention_profile.hpp"

#include <algorithm>
#include <cmath>
#include <functional>

#include "tensors.hpp"

namespace winnow::ggml {
namespace {

constexpr std::array<size_t, 2> newest = {50, 100};

} // namespace

AttentionProfile::AttentionProfile(int64_t layers, int64_t q_heads, int64_t columns, int64_t kv_heads)
    : q_heads_(q_heads), columns_(columns),
      layers_(static_cast<size_t>(layers), std::vector<Head>(static_cast<size_t>(q_heads))) {
    if (kv_heads == 0) return;
    group_ = q_heads / kv_heads;
    samples_.emplace(layers, kv_heads, columns);
}

const winnow_tensor* AttentionProfile::scores(int64_t tokens) {
    scores_.resize(static_cast<size_t>(q_heads_ * tokens * columns_));
    constexpr int64_t element = sizeof(float);
    tensor_ = rows_over(WINNOW_TYPE_F32, scores_.data(),
                        {q_heads_, tokens, columns_, element, columns_ * element, tokens * columns_});
    return &tensor_;
}

AttentionProfile::Columns& AttentionProfile::columns_of(int64_t layer, int64_t stream) {
    Columns& its = streams_[{layer, stream}];
    its.received.resize(static_cast<size_t>(q_heads_ * columns_));
    its.token.resize(static_cast<size_t>(columns_), -1);
    return its;
}

void AttentionProfile::append(int64_t layer, int64_t stream, std::span<const int32_t> columns) {
    Columns& its = columns_of(layer, stream);
    for (const int32_t column : columns) its.token.at(static_cast<size_t>(column)) = its.tokens++;
}

void AttentionProfile::add(int64_t layer, int64_t stream) {
    Columns& its = columns_of(layer, stream);
    const int64_t tokens = tensor_.shape[2];
    for (int64_t head = 0; head < q_heads_; ++head) {
        if (samples_ && head % group_ == 0) of_group_.assign(static_cast<size_t>(tokens * columns_), 0);
        for (int64_t token = 0; token < tokens; ++token) {
            add_row(layers_[static_cast<size_t>(layer)][static_cast<size_t>(head)],
                    &scores_[static_cast<size_t>((head * tokens + token) * columns_)],
                    &its.received[static_cast<size_t>(head * columns_)], its.token,
                    samples_ ? &of_group_[static_cast<size_t>(token * columns_)] : nullptr);
        }
        if (samples_ && (head + 1) % group_ == 0) add_samples(layer, stream, head / group_, tokens, its);
    }
}

void AttentionProfile::add_samples(int64_t layer, int64_t stream, int64_t kv_head, int64_t tokens,
                                   const Columns& columns) {
    for (float& probability : of_group_) probability /= static_cast<float>(group_);
    // A step's tokens are all in their columns, also those that a query is before.
    const int64_t before = columns.tokens - tokens;
    std::vector<int64_t> present = columns.token;
    for (int64_t& token : present)
        if (token >= before) token = -1;
    std::vector<size_t> arriving(static_cast<size_t>(tokens), columns.token.size());
    for (size_t i = 0; i < columns.token.size(); ++i)
        if (columns.token[i] >= before) arriving[static_cast<size_t>(columns.token[i] - before)] = i;
    for (int64_t token = 0; token < tokens; ++token) {
        if (arriving[static_cast<size_t>(token)] < present.size())
            present[arriving[static_cast<size_t>(token)]] = before + token;
        samples_->add(
            layer, stream, kv_head,
            std::span(of_group_).subspan(static_cast<size_t>(token * columns_), static_cast<size_t>(columns_)),
            present);
    }
}

void AttentionProfile::add_row(Head& head, const float* logits, Received* received, const std::vector<int64_t>& token,
                               float* probabilities) {
    seen_.clear();
    by_age_.clear();
    float most = -INFINITY;
    for (int64_t i = 0; i < columns_; ++i) {
        if (logits[i] == -INFINITY) continue;
        most = std::max(most, logits[i]);
        seen_.push_back(logits[i]);
    }
    if (static_cast<int64_t>(seen_.size()) < fewest_seen) return;
    double sum = 0, weighted = 0;
    for (float& each : seen_) {
        const float below = each - most;
        each = std::exp(below);
        sum += each;
        weighted += static_cast<double>(each) * below;
    }
    head.entropy += std::log(sum) - weighted / sum;
    const float* next = seen_.data();
    for (int64_t i = 0; i < columns_; ++i) {
        if (logits[i] == -INFINITY) continue;
        const double probability = *next++ / sum;
        if (probabilities) probabilities[i] += static_cast<float>(probability);
        received[i].count += 1;
        received[i].sum += probability;
        received[i].squares += probability * probability;
        by_age_.emplace_back(token[static_cast<size_t>(i)], static_cast<float>(probability));
    }
    add_newest(head);
    const auto tenth = seen_.begin() + static_cast<std::ptrdiff_t>((seen_.size() + 9) / 10);
    std::nth_element(seen_.begin(), tenth - 1, seen_.end(), std::greater<>());
    double largest = 0;
    for (auto at = seen_.begin(); at != tenth; ++at) largest += *at;
    head.concentration += largest / sum;
    ++head.queries;
}

void AttentionProfile::add_newest(Head& head) {
    for (size_t i = 0; i < newest.size(); ++i) {
        if (by_age_.size() <= newest[i]) continue;
        const auto end = by_age_.begin() + static_cast<std::ptrdiff_t>(newest[i]);
        std::nth_element(by_age_.begin(), end - 1, by_age_.end(), std::greater<>());
        for (auto at = by_age_.begin(); at != end; ++at) head.newest[i] += at->second;
        ++head.newest_queries[i];
    }
}

void AttentionProfile::end(Head& head, std::vector<Received>& received, size_t first, size_t count) {
    for (size_t i = first; i < first + count; ++i) {
        const Received& token = received[i];
        if (token.count < 2) continue;
        const double mean = token.sum / token.count;
        head.variance += std::max(token.squares / token.count - mean * mean, 0.0);
        ++head.tokens;
    }
}

void AttentionProfile::end_sequences() {
    for (auto& [key, its] : streams_) {
        for (int64_t head = 0; head < q_heads_; ++head) {
            end(layers_[static_cast<size_t>(key.first)][static_cast<size_t>(head)], its.received,
                static_cast<size_t>(head * columns_), static_cast<size_t>(columns_));
        }
    }
    streams_.clear();
    if (samples_) samples_->end_sequences();
}

std::vector<LayerProfile> AttentionProfile::layers(const std::vector<std::string>& names) const {
    const auto mean = [](double sum, uint64_t count) { return count > 0 ? sum / static_cast<double>(count) : 0.0; };
    std::vector<LayerProfile> profile;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
        LayerProfile made{
            names[layer], layers_[layer].empty() ? 0 : layers_[layer].front().queries, {}, {}, {}, {}, {}, {}};
        for (const Head& head : layers_[layer]) {
            made.entropy.push_back(mean(head.entropy, head.queries));
            made.concentration.push_back(mean(head.concentration, head.queries));
            made.variance.push_back(mean(head.variance, head.tokens));
            made.newest_50.push_back(mean(head.newest[0], head.newest_queries[0]));
            made.newest_100.push_back(mean(head.newest[1], head.newest_queries[1]));
        }
        if (samples_) made.samples = samples_->of(static_cast<int64_t>(layer));
        profile.push_back(std::move(made));
    }
    return profile;
}

} // namespace winnow::ggml
