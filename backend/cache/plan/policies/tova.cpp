// TOVA (Oren et al., 2024): what the last query attended to least is evicted, however much was attended to it before.
// The paper takes the mean over all heads of a layer; here each KV head goes by its own query group.
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"recent", Kind::amount, "0/1", "newest tokens that stay: tokens, or a share of the budget"},
    grace_key,
};

Description describe(const Config& config, const LayerContext& context) {
    Description description = basic(config, context);
    description.importance = {Statistic::probability, Accumulation::decayed_sum, 0};
    description.ranking = Ranking::importance;
    description.grace = config.count("grace");
    protect_recent(description, tokens_of(config.amount("recent"), context.budget));
    return description;
}

} // namespace

constinit const PolicyKind tova_policy = {"tova", true, keys, make<Described<describe, true>>};

} // namespace winnow::cache
