// Scissorhands (Liu et al., 2023): a token that was above the mean before will be again. Counts, over a history window,
// how often a token had at least the mean probability; when the budget is full, half of it is evicted at once.
// The paper keeps the last queries' weights; a decayed sum of the same mass takes their place: one number a token.
#include <algorithm>
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"history", Kind::count, "400", "queries that the count covers", "", 1, 1 << 20},
    Key{"recent", Kind::amount, "10", "newest tokens that stay: tokens, or a share of the budget"},
    Key{"drop", Kind::share, "1/2", "share of the budget that a pass evicts once the budget is full"},
    grace_key,
};

Description describe(const Config& config, const LayerContext& context) {
    Description description = basic(config, context);
    const double history = static_cast<double>(config.count("history"));
    description.importance = {Statistic::above_mean, Accumulation::decayed_sum, 1 - 1 / history};
    description.ranking = Ranking::importance;
    description.grace = config.count("grace");
    description.target = context.budget - floor_of(config.amount("drop").share, context.budget);
    description.recent = std::max(description.recent, tokens_of(config.amount("recent"), context.budget));
    return description;
}

} // namespace

constinit const PolicyKind scissorhands_policy = {"scissorhands", true, keys, make<Described<describe, true>>};

} // namespace winnow::cache
