// The default: how much of the output a token carries. Decayed sum of squared probabilities times the distance of the
// token's value from the mean output; a quarter of the budget is recent. Where half of the context or more fits, a
// window lost less when it was measured.
#include <algorithm>
#include <array>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    whole_budget_key,
    turbo4_k_key,
    turbo3_v_key,
    unit_slope_k_norm_key,
    Key{"recent", Kind::amount, "1/4", "newest tokens that stay: tokens, or a share of the budget"},
    Key{"decay", Kind::number, "0.99", "factor on the older importance with each query token", "", 0, 1},
    Key{"statistic", Kind::word, "probability_squared", "what a query adds", statistic_choices},
    Key{"window_from", Kind::share, "1/2", "a budget of at least this share of the context evicts by age alone"},
    grace_key,
    every_key,
    Key{"recall", Kind::folder, "off", "keep every token; a decoding query reads only the pages that it picks",
        "off|host"},
    Key{"cold", Kind::amount, "1/1",
        "with recall: most tokens that a KV head keeps: tokens, or a share of the context"},
    Key{"page", Kind::count, "2", "with recall: tokens of a page, 1, 2 or 4", "", 1, 4},
    Key{"signature", Kind::word, "signs", "with recall: what describes a page: signs, or codes from codebooks",
        "signs|codes"},
    Key{"codebook_file", Kind::text, "", "with recall: file of the codebooks, which the host reads"},
    Key{"bonus", Kind::number, "1", "with recall: e^bonus multiplies the score of a page that was picked before", "", 0,
        80},
    Key{"newest", Kind::count, "16",
        "with recall: newest packed tokens that each query picks; at most half of its picks", "", 0, 1 << 16},
    Key{"picked", Kind::count, "", "with recall: tokens that a query picks; default: as many as the budget holds", "",
        1, 1 << 24},
};

class Winnow : public Policy {
public:
    explicit Winnow(Config config) : config_(std::move(config)) {}

    Description describe(const LayerContext& context) const override {
        Description description = basic(config_, context);
        if (config_.has_cold_budget()) { // many at once, as the packed rows are moved together then
            description.cadence = std::max(description.cadence, 2 * context.residual);
            description.target = context.budget - std::max(context.budget / 8, description.cadence);
            description.recent = context.residual; // the packed rows alone are moved together
        }
        if (is_window(context)) return description;
        description.importance = {statistic_of(config_.word("statistic")), Accumulation::decayed_sum,
                                  config_.number("decay")};
        description.ranking = Ranking::importance_value_distance;
        description.grace = config_.count("grace");
        protect_recent(description, tokens_of(config_.amount("recent"), context.budget));
        return description;
    }

    bool keeps_importance(const LayerContext& context) const override { return !is_window(context); }

private:
    bool is_window(const LayerContext& context) const {
        if (config_.recalls()) return true;
        return context.budget >= ceil_of(config_.amount("window_from").share, context.context);
    }

    Config config_;
};

} // namespace

constinit const PolicyKind winnow_policy = {"winnow", true, keys, make<Winnow>};

} // namespace winnow::cache
