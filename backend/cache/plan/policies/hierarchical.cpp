// Layers in three tiers, after the article on hierarchical pruning of the cache: shallow ones keep the newest tokens,
// middle ones evict what is below a threshold of importance, deep ones little and only what is old. Begins at 70% of
// the budget. docs/policies.md links to how the article was read.
#include <algorithm>
#include <array>
#include <optional>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"profile", Kind::word, "chat", "preset of theta_middle, theta_deep, recent_deep and batch",
        "chat|code|summarize|long_form"},
    Key{"thresholds", Kind::word, "tiers", "preset of the thetas: by profile, or 0.20, 0.30 and 0.35",
        "tiers|conservative"},
    Key{"theta_shallow", Kind::number, "", "theta of shallow layers; default: none (by age), conservative 0.20"},
    Key{"theta_middle", Kind::number, "", "theta of middle layers; 0.15, code 0.10, summarize and conservative 0.30"},
    Key{"theta_deep", Kind::number, "", "theta of deep layers; 0.25, long_form 0.125, conservative 0.35"},
    Key{"quantile", Kind::number, "0.99", "quantile of the head's importances that the thetas multiply", "", 0, 1},
    Key{"alpha", Kind::number, "0.3", "weight of the newest query in the moving average", "", 0, 1},
    Key{"statistic", Kind::word, "probability", "what a query adds", statistic_choices},
    Key{"trigger", Kind::share, "7/10", "share of the budget, and memory pressure, above which a tier evicts"},
    Key{"middle_from", Kind::share, "1/3", "share of the layers before the middle tier, rounded up"},
    Key{"deep_from", Kind::share, "2/3", "share of the layers before the deep tier, rounded up"},
    Key{"recent_shallow", Kind::count, "", "newest tokens that shallow layers keep; 128, half the budget at most"},
    Key{"recent_middle", Kind::count, "", "newest tokens that middle layers keep; 128, half the budget at most"},
    Key{"recent_deep", Kind::count, "",
        "newest tokens that deep layers keep; 256, long_form 512, half the budget at most"},
    Key{"first", Kind::count, "64", "first tokens that the middle tier keeps"},
    Key{"candidates", Kind::share, "1/2", "share of the sequence, around its middle, where the middle tier evicts"},
    Key{"batch", Kind::count, "", "most evictions of a pass in middle layers; 16, code 8, summarize 32", "", 1},
    Key{"deep_share", Kind::share, "1/10", "most evictions of a pass in deep layers, as a share of the head's tokens"},
    grace_key,
};

struct Profile {
    const char* name;
    double theta_middle, theta_deep;
    int64_t recent_deep, batch;
};
constexpr Profile profiles[] = {{"chat", .15, .25, 256, 16},
                                {"code", .10, .25, 256, 8},
                                {"summarize", .30, .25, 256, 32},
                                {"long_form", .15, .125, 512, 16}};
constexpr double conservative[] = {.20, .30, .35}; // as the article calls them; they evict more

class Hierarchical : public Policy {
public:
    explicit Hierarchical(Config config) : config_(std::move(config)) {
        if (is_conservative() && config_.word("profile") != "chat")
            refuse("hierarchical: thresholds=conservative and profile=" + config_.word("profile") +
                   " both say the thetas: expected one of them");
        if (ceil_of(share("middle_from"), 1 << 20) > ceil_of(share("deep_from"), 1 << 20))
            refuse("hierarchical: middle_from=" + spell(config_.at("middle_from")) +
                   " is more than deep_from=" + spell(config_.at("deep_from")) + ": expected at most as much");
    }

    Description describe(const LayerContext& context) const override {
        const Profile& profile = *std::find_if(std::begin(profiles), std::end(profiles), [&](const Profile& each) {
            return each.name == config_.word("profile");
        });
        Description description = basic(config_, context);
        description.importance = {statistic_of(config_.word("statistic")), Accumulation::ema,
                                  1 - config_.number("alpha")};
        description.ranking = Ranking::importance;
        description.grace = config_.count("grace");
        description.quantile = config_.number("quantile");
        description.target = 0;
        description.trigger = share("trigger");
        if (context.pressure * static_cast<double>(description.trigger.whole) >
            static_cast<double>(description.trigger.part))
            description.trigger = {0, 1};
        if (is_shallow(context))
            shallow(description, context);
        else if (context.layer < ceil_of(share("deep_from"), context.layers))
            middle(description, context, profile);
        else
            deep(description, context, profile);
        return description;
    }

    bool keeps_importance(const LayerContext& context) const override {
        return !is_shallow(context) || theta_shallow().has_value();
    }

private:
    void shallow(Description& description, const LayerContext& context) const {
        protect(description, context, "recent_shallow", 128);
        description.threshold = theta_shallow();
        if (description.threshold) return;
        description.importance = {};
        description.ranking = Ranking::age;
        description.grace = 0;
    }

    void middle(Description& description, const LayerContext& context, const Profile& profile) const {
        protect(description, context, "recent_middle", 128);
        description.threshold = theta("theta_middle", is_conservative() ? conservative[1] : profile.theta_middle);
        description.most = config_.has("batch") ? config_.count("batch") : profile.batch;
        description.eligible_first = config_.count("first");
        const Share candidates = share("candidates"); // half of the others lie before it, half behind
        description.eligible_from = {candidates.whole - candidates.part, 2 * candidates.whole};
        description.eligible_until = {candidates.whole + candidates.part, 2 * candidates.whole};
    }

    void deep(Description& description, const LayerContext& context, const Profile& profile) const {
        protect(description, context, "recent_deep", profile.recent_deep);
        description.threshold = theta("theta_deep", is_conservative() ? conservative[2] : profile.theta_deep);
        description.most_share = share("deep_share");
    }

    void protect(Description& description, const LayerContext& context, const char* key, int64_t otherwise) const {
        description.recent = std::max(description.recent,
                                      config_.has(key) ? config_.count(key) : std::min(otherwise, context.budget / 2));
    }

    bool is_shallow(const LayerContext& context) const {
        return context.layer < ceil_of(share("middle_from"), context.layers);
    }
    std::optional<double> theta_shallow() const { // none: by age
        if (!config_.has("theta_shallow") && !is_conservative()) return std::nullopt;
        return theta("theta_shallow", conservative[0]);
    }
    double theta(const char* key, double otherwise) const { return config_.has(key) ? config_.number(key) : otherwise; }
    Share share(const char* key) const { return config_.amount(key).share; }
    bool is_conservative() const { return config_.word("thresholds") == "conservative"; }

    Config config_;
};

} // namespace

constinit const PolicyKind hierarchical_policy = {"hierarchical", true, keys, make<Hierarchical>};

} // namespace winnow::cache
