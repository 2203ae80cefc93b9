// Heavy hitters and newest tokens in formats of their own: a token goes from the first packed segment to the second
// when it is old, and stays there as long as it is important. Importance is winnow's.
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    turbo4_k_key,
    Key{"v", Kind::format, "turbo4", "storage format of values"},
    unit_slope_k_norm_key,
    Key{"share2", Kind::share, "1/2", "share of the budget's tokens in the second packed segment: the heavy hitters"},
    Key{"k2", Kind::format, "q8_0", "storage format of its keys"},
    Key{"v2", Kind::format, "q8_0", "storage format of its values"},
    Key{"decay", Kind::number, "0.99", "factor on the older importance with each query token", "", 0, 1},
    Key{"statistic", Kind::word, "probability_squared", "what a query adds", statistic_choices},
    grace_key,
    every_key,
};

Description describe(const Config& config, const LayerContext& context) {
    Description description = basic(config, context);
    description.importance = {statistic_of(config.word("statistic")), Accumulation::decayed_sum,
                              config.number("decay")};
    description.ranking = Ranking::importance_value_distance;
    description.grace = config.count("grace");
    description.moves_by_age = true;
    int64_t heavy = 0;
    for (const LowerTier& tier : config.lower()) heavy += floor_of(tier.share, context.budget);
    protect_recent(description, context.budget - description.sink - heavy);
    return description;
}

} // namespace

constinit const PolicyKind mixed_policy = {"mixed", true, keys, make<Described<describe, true>>};

} // namespace winnow::cache
