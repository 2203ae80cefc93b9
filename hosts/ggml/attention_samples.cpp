// Samples begin every so many queries, are open over the horizon, and then kept.
#include "attention_samples.hpp"

#include <algorithm>

namespace winnow::ggml {

namespace {

constexpr int64_t sinks = 4; // which no policy evicts

} // namespace

AttentionSamples::AttentionSamples(int64_t layers, int64_t kv_heads, int64_t columns)
    : kv_heads_(kv_heads), columns_(columns),
      samples_(static_cast<size_t>(layers), std::vector<std::vector<AttentionSample>>(static_cast<size_t>(kv_heads))) {}

void AttentionSamples::add(int64_t layer, int64_t stream, int64_t head, std::span<const float> probabilities,
                           std::span<const int64_t> token) {
    std::vector<Head>& heads = streams_[{layer, stream}];
    heads.resize(static_cast<size_t>(kv_heads_));
    Head& its = heads[static_cast<size_t>(head)];
    its.importance.resize(static_cast<size_t>(columns_));
    its.token.resize(static_cast<size_t>(columns_), -1);
    ++its.queries;
    for (size_t i = 0; i < its.importance.size(); ++i) {
        const double before = its.token[i] == token[i] ? its.importance[i] : 0;
        its.token[i] = token[i];
        its.importance[i] = decay * before + static_cast<double>(probabilities[i]);
    }
    std::erase_if(its.open, [&](const Open& open) { return token[open.column] != open.token; });
    std::vector<AttentionSample>& kept = samples_[static_cast<size_t>(layer)][static_cast<size_t>(head)];
    for (Open& open : its.open) {
        open.sample.attention += static_cast<double>(probabilities[open.column]);
        if (--open.left == 0) kept.push_back(open.sample);
    }
    std::erase_if(its.open, [](const Open& open) { return open.left == 0; });
    if (its.queries >= horizon && its.queries % every == 0) begin(its, probabilities);
}

// Of tokens that the query sees: a window's layer would hold no others.
void AttentionSamples::begin(Head& head, std::span<const float> probabilities) {
    const std::vector<int64_t>& token = head.token;
    const int64_t newest = *std::max_element(token.begin(), token.end());
    candidates_.clear();
    for (size_t i = 0; i < token.size(); ++i)
        if (token[i] >= sinks && newest - token[i] + 1 >= youngest && probabilities[i] > 0) candidates_.push_back(i);
    const size_t count = std::min(candidates_.size(), static_cast<size_t>(at_once));
    for (size_t i = 0; i < count; ++i) {
        std::swap(candidates_[i], candidates_[i + random_() % (candidates_.size() - i)]);
        const size_t column = candidates_[i];
        const auto age = static_cast<double>(newest - token[column] + 1);
        head.open.push_back({column, token[column], {head.importance[column], age, 0}, horizon});
    }
}

} // namespace winnow::ggml
