// A choice is counted, and then worth what is counted of its expert.
#include "cache/calls/set_experts.hpp"

#include <algorithm>
#include <numeric>
#include <string>

#include "cache/calls/set_importance.hpp"

namespace winnow::cache {
namespace {

constexpr float of_inactive_alone = -1; // less than what nothing was said of, which is 0

// How often each one is chosen, of what all are on average, as if each had been once before; 0 where that is less than
// `inactive`.
std::vector<double> shares(const std::vector<uint64_t>& counts, Share inactive) {
    const uint64_t number = counts.size(), total = std::accumulate(counts.begin(), counts.end(), number);
    std::vector<double> found;
    for (const uint64_t count : counts) {
        const __int128 chosen = static_cast<__int128>(count + 1) * static_cast<__int128>(number);
        const bool is_active = chosen * inactive.whole >= static_cast<__int128>(total) * inactive.part;
        found.push_back(is_active ? static_cast<double>(chosen) / static_cast<double>(total) : 0);
    }
    return found;
}

} // namespace

int64_t number_of_experts(const Config& config) { return config.has("experts") ? config.count("experts") : 0; }

std::vector<uint64_t> expert_counts(const CacheState& cache, int64_t layer) {
    const Config& config = cache.geometry->config();
    const auto number = static_cast<size_t>(number_of_experts(config));
    if (number == 0) refuse(to_string(config) + " counts no experts, moe does");
    const auto at = static_cast<size_t>(layer);
    return cache.expert_counts.size() > at && !cache.expert_counts[at].empty() ? cache.expert_counts[at]
                                                                               : std::vector<uint64_t>(number);
}

void set_experts(CacheState& cache, int64_t sequence, int64_t layer, std::span<const int32_t> token_ids,
                 std::span<const int32_t> experts) {
    std::vector<uint64_t> counts = expert_counts(cache, layer);
    if (token_ids.empty()) return;
    for (size_t at = 0; at < experts.size(); ++at) {
        const int32_t expert = experts[at];
        if (expert < 0 || static_cast<size_t>(expert) >= counts.size())
            refuse("experts[" + std::to_string(at) + "] is " + std::to_string(expert) + ", expected 0 to " +
                   std::to_string(counts.size() - 1));
        ++counts[static_cast<size_t>(expert)];
    }
    const std::vector<double> worth = shares(counts, cache.geometry->config().amount("inactive").share);
    const size_t of_token = experts.size() / token_ids.size();
    std::vector<float> importance;
    for (size_t at = 0; at < token_ids.size(); ++at) {
        double sum = 0;
        for (const int32_t expert : experts.subspan(at * of_token, of_token)) sum += worth[static_cast<size_t>(expert)];
        importance.push_back(sum > 0 ? static_cast<float>(sum / static_cast<double>(of_token)) : of_inactive_alone);
    }
    cache.expert_counts.resize(static_cast<size_t>(cache.geometry->shape().layers));
    set_importance(cache, sequence, layer, {0, cache.geometry->shape().kv_heads}, token_ids, importance);
    cache.expert_counts[static_cast<size_t>(layer)] = std::move(counts);
}

} // namespace winnow::cache
