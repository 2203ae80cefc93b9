// The host says what tokens are worth by the experts that a router chose for them (cache_set_importance); attention
// adds nothing to it. `experts` and `inactive` are of the host's rule.
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"experts", Kind::count, "64", "experts that the router of a layer chooses from", "", 1, 1 << 16},
    inactive_key,
    evict_inactive_key,
    Key{"recent", Kind::amount, "1/4", "newest tokens that stay: tokens, or a share of the budget"},
};

Description describe(const Config& config, const LayerContext& context) {
    Description description = basic(config, context);
    rank_by_experts(description, config);
    protect_recent(description, tokens_of(config.amount("recent"), context.budget));
    return description;
}

} // namespace

void rank_by_experts(Description& description, const Config& config) {
    description.ranking = Ranking::importance;
    if (config.word("evict_inactive") == "off") return;
    description.trigger = {0, 1};
    description.target = 0;
    description.threshold = 0; // of any quantile: what is below 0
}

constinit const PolicyKind moe_policy = {"moe", true, keys, make<Described<describe, true>>};

} // namespace winnow::cache
