// Random tokens beside the sinks and the newest: what any importance has to beat. A token's rank is drawn once, from
// its position, so that the resident tokens are a uniform sample of all that came and a run repeats itself.
#include <array>

#include "cache/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"recent", Kind::amount, "1/2", "newest tokens retained: tokens or a share of the budget"},
    Key{"seed", Kind::count, "0", "of the draw", "", 0, 1 << 30},
};

class Random : public Policy {
public:
    explicit Random(Config config) : config_(std::move(config)) {}

    Description describe(const LayerContext& context) const override {
        Description description = basic(config_, context);
        description.ranking = Ranking::random;
        description.seed = static_cast<uint64_t>(config_.count("seed")) << 20 | static_cast<uint64_t>(context.layer);
        protect_recent(description, tokens_of(config_.amount("recent"), context.budget));
        return description;
    }

    bool keeps_importance(const LayerContext&) const override { return false; }

private:
    Config config_;
};

} // namespace

constinit const PolicyKind random_policy = {"random", true, keys, make<Random>};

} // namespace winnow::cache
