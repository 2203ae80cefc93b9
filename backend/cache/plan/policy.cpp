// The list of policies, and what they share.
#include "cache/plan/policy.hpp"

#include <algorithm>
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array all = {&winnow_policy,          &window_policy,   &h2o_policy,
                            &scissorhands_policy,    &tova_policy,     &hierarchical_policy,
                            &adaptive_budget_policy, &mixed_policy,    &decay_policy,
                            &random_policy,          &external_policy, &moe_policy,
                            &learned_policy,         &none_policy};

} // namespace

std::span<const PolicyKind* const> policies() { return all; }

const PolicyKind* find_policy(std::string_view name) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const PolicyKind* each) { return each->name == name; });
    return found == all.end() ? nullptr : *found;
}

std::unique_ptr<Policy> make_policy(const Config& config) { return config.policy().make(config); }

std::vector<int64_t> Policy::budgets(int64_t layers, int64_t tokens, int64_t, int64_t,
                                     std::span<const LayerProfile>) const {
    return std::vector<int64_t>(static_cast<size_t>(layers), tokens);
}

Statistic statistic_of(std::string_view word) {
    return word == "score_magnitude" ? Statistic::score_magnitude
           : word == "probability"   ? Statistic::probability
                                     : Statistic::probability_squared;
}

Description basic(const Config& config, const LayerContext& context) {
    Description description;
    description.sink = config.sink();
    description.context = context.context;
    description.budget = context.budget;
    description.cadence = context.cadence;
    description.target = context.budget;
    description.recent = std::max<int64_t>(context.residual - context.cadence, 0);
    return description;
}

void protect_recent(Description& description, int64_t tokens) {
    description.recent = std::max(description.recent, tokens - description.cadence);
}

} // namespace winnow::cache
