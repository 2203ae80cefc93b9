// The host says what tokens are worth (cache_set_importance); attention adds nothing to it. For policies that are not
// Winnow's own.
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"recent", Kind::amount, "1/4", "newest tokens that stay: tokens, or a share of the budget"},
};

Description describe(const Config& config, const LayerContext& context) {
    Description description = basic(config, context);
    description.ranking = Ranking::importance;
    protect_recent(description, tokens_of(config.amount("recent"), context.budget));
    return description;
}

} // namespace

constinit const PolicyKind external_policy = {"external", true, keys, make<Described<describe, true>>};

} // namespace winnow::cache
