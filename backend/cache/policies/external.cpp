// The host says what tokens are worth (cache_set_importance); attention adds nothing to it. For policies that are not
// Winnow's own.
#include <array>

#include "cache/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"recent", Kind::amount, "1/4", "newest tokens retained: tokens or a share of the budget"},
};

class External : public Policy {
public:
    explicit External(Config config) : config_(std::move(config)) {}

    Description describe(const LayerContext& context) const override {
        Description description = basic(config_, context);
        description.ranking = Ranking::importance;
        protect_recent(description, tokens_of(config_.amount("recent"), context.budget));
        return description;
    }

    bool keeps_importance(const LayerContext&) const override { return true; }

private:
    Config config_;
};

} // namespace

constinit const PolicyKind external_policy = {"external", true, keys, make<External>};

} // namespace winnow::cache
