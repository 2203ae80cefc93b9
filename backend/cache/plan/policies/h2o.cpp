// Heavy hitters, sinks and the newest tokens. Defaults and presets are those of AtomGradient's H2OAttnScore (moving
// average of score magnitudes); statistic=probability,accumulation=sum,alpha=1 is the paper's (Zhang et al., 2023).
#include <algorithm>
#include <array>
#include <optional>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"max", Kind::budget, "", "another name for budget", "", 0, 0, "budget"},
    Key{"preset", Kind::word, "", "sets heavy to 1/8, 1/4 or 1/2 of the budget, and recent to the rest",
        "recent|balanced|heavy"},
    Key{"heavy", Kind::amount, "", "most important tokens that stay: tokens, or a share of the budget; default 1/2"},
    Key{"recent", Kind::amount, "", "newest tokens that stay: tokens, or a share of the budget; default: the rest"},
    Key{"alpha", Kind::number, "0.95", "factor on the older importance with each query token", "", 0, 1},
    Key{"statistic", Kind::word, "score_magnitude", "what a query adds", statistic_choices},
    Key{"accumulation", Kind::word, "ema",
        "ema: moving average; sum: alpha times the old sum, plus what the query adds", "ema|sum"},
    grace_key,
    every_key,
};

struct Preset {
    const char* name;
    Share heavy;
};
constexpr Preset presets[] = {{"recent", {1, 8}}, {"balanced", {1, 4}}, {"heavy", {1, 2}}};

class H2o : public Policy {
public:
    explicit H2o(Config config) : config_(std::move(config)) {
        if (config_.has("preset") && (config_.has("heavy") || config_.has("recent")))
            refuse("h2o: preset=" + config_.word("preset") +
                   " says heavy and recent, which are given, too: expected either");
        if (config_.budget().unit != Amount::Unit::tokens) return;
        check(config_.budget().count);
    }

    Description describe(const LayerContext& context) const override {
        check(context.budget);
        Description description = basic(config_, context);
        description.importance = {statistic_of(config_.word("statistic")),
                                  config_.word("accumulation") == "ema" ? Accumulation::ema : Accumulation::decayed_sum,
                                  config_.number("alpha")};
        description.ranking = Ranking::importance;
        description.grace = config_.count("grace");
        // Heavy and recent need not fill the budget. An eviction pass then leaves their sum, at most what leaves room
        // for the tokens until the next one.
        const auto [heavy, recent] = parts(context.budget);
        description.target = std::min(context.budget, description.sink + heavy + recent);
        const int64_t left = std::min(description.target, context.budget - context.cadence);
        description.recent = std::max(description.recent, left - description.sink - heavy);
        return description;
    }

    bool keeps_importance(const LayerContext&) const override { return true; }

private:
    struct Parts {
        int64_t heavy, recent;
    };

    Parts parts(int64_t budget) const {
        const std::string name = config_.has("preset") ? config_.word("preset") : "heavy";
        const auto preset =
            std::find_if(std::begin(presets), std::end(presets), [&](const Preset& each) { return each.name == name; });
        const int64_t rest = budget - config_.sink();
        if (config_.has("heavy") && config_.has("recent"))
            return {tokens_of(config_.amount("heavy"), budget), tokens_of(config_.amount("recent"), budget)};
        if (config_.has("recent")) {
            const int64_t recent = tokens_of(config_.amount("recent"), budget);
            return {rest - recent, recent};
        }
        const int64_t heavy =
            config_.has("heavy") ? tokens_of(config_.amount("heavy"), budget) : floor_of(preset->heavy, budget);
        return {heavy, rest - heavy};
    }

    void check(int64_t budget) const {
        const auto [heavy, recent] = parts(budget);
        if (heavy < 0 || recent < 0 || config_.sink() + heavy + recent > budget)
            refuse("h2o: sink=" + std::to_string(config_.sink()) +
                   ", heavy=" + std::to_string(std::max<int64_t>(heavy, 0)) +
                   " and recent=" + std::to_string(std::max<int64_t>(recent, 0)) +
                   " tokens are more than a budget of " + std::to_string(budget) + ": expected at most that together");
    }

    Config config_;
};

} // namespace

constinit const PolicyKind h2o_policy = {"h2o", true, keys, make<H2o>};

} // namespace winnow::cache
