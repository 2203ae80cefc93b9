// Random tokens beside the sinks and the newest: what any importance has to beat. A token's rank is drawn once, from
// its position, so that the resident tokens are a uniform sample of all that came and a run repeats itself.
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"recent", Kind::amount, "1/2", "newest tokens that stay: tokens, or a share of the budget"},
    Key{"seed", Kind::count, "0", "seed of the random numbers", "", 0, 1 << 30},
};

Description describe(const Config& config, const LayerContext& context) {
    Description description = basic(config, context);
    description.ranking = Ranking::random;
    description.seed = static_cast<uint64_t>(config.count("seed")) << 20 | static_cast<uint64_t>(context.layer);
    protect_recent(description, tokens_of(config.amount("recent"), context.budget));
    return description;
}

} // namespace

constinit const PolicyKind random_policy = {"random", true, keys, make<Described<describe, false>>};

} // namespace winnow::cache
