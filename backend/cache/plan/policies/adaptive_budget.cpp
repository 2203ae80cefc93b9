// Budgets per layer from a profile of the model's attention; another policy selects victims within them. Layers whose
// attention is spread out (high entropy, low concentration) or moves (high variance) get more. After AtomGradient's
// H2OAttnScore, which found no gain in it.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    Key{"policy", Kind::word, "h2o", "selects the victims, with its own defaults",
        "winnow|window|h2o|scissorhands|tova|random"},
    Key{"profile_file", Kind::text, "", "file of the profile, which the host reads"},
    Key{"least", Kind::share, "1/2", "share of an even budget that every layer gets"},
    Key{"entropy", Kind::number, "1", "weight of high entropy", "", 0, 1000},
    Key{"concentration", Kind::number, "1", "weight of low concentration", "", 0, 1000},
    Key{"variance", Kind::number, "1", "weight of high variance", "", 0, 1000},
};

// Moves the numbers to 0..1; all alike are all a half.
std::vector<double> relative(std::span<const LayerProfile> profile, double LayerProfile::*member) {
    std::vector<double> values;
    for (const LayerProfile& each : profile) values.push_back(each.*member);
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    const double least = *low / 2, range = *high / 2 - least; // halves: no difference overflows
    for (double& value : values) value = range > 0 ? (value / 2 - least) / range : .5;
    return values;
}

// Divides `tokens` in proportion to the weights, alike where all are 0, at most `most` each: who would get more gets
// that, and the others divide the rest. Rounded down, and one more for the largest remainders (the earlier layer where
// they tie). There are at most as many tokens as that allows.
std::vector<int64_t> apportion(int64_t tokens, const std::vector<double>& weights, int64_t most) {
    const size_t layers = weights.size();
    std::vector<size_t> order(layers); // the largest weight first
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[a] > weights[b]; });
    std::vector<double> sums(layers + 1); // of the weights from there on
    for (size_t i = layers; i-- > 0;) sums[i] = sums[i + 1] + weights[order[i]];

    int64_t rest = tokens;
    size_t first = 0; // of those who divide the rest
    const auto exact = [&](size_t layer) {
        const double part = sums[first] > 0 ? weights[layer] / sums[first] : 1 / static_cast<double>(layers - first);
        return static_cast<double>(rest) * part;
    };
    for (; first < layers && exact(order[first]) > static_cast<double>(most); ++first) rest -= most;

    std::vector<int64_t> given(layers, most);
    std::vector<double> remainders(layers);
    int64_t left = rest;
    order.erase(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first));
    std::sort(order.begin(), order.end());
    for (const size_t layer : order) {
        const double share = exact(layer);
        given[layer] = std::min(static_cast<int64_t>(share), left);
        left -= given[layer];
        remainders[layer] = share - std::floor(share);
    }
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return remainders[a] > remainders[b]; });
    for (size_t i = 0; left > 0; i = (i + 1) % order.size()) {
        if (given[order[i]] == most) continue;
        ++given[order[i]];
        --left;
    }
    return given;
}

class AdaptiveBudget : public Policy {
public:
    explicit AdaptiveBudget(Config config)
        : config_(std::move(config)), selector_(make_policy(with_policy(config_, config_.word("policy")))) {
        if (config_.number("entropy") + config_.number("concentration") + config_.number("variance") == 0)
            refuse("adaptive_budget: entropy, concentration and variance all weigh 0: expected one that weighs more");
    }

    Description describe(const LayerContext& context) const override { return selector_->describe(context); }
    bool keeps_importance(const LayerContext& context) const override { return selector_->keeps_importance(context); }
    bool divides_by_profile() const override { return true; }

    std::vector<int64_t> budgets(int64_t layers, int64_t tokens, int64_t least, int64_t most,
                                 std::span<const LayerProfile> profile) const override {
        check(profile, layers);
        const double weights[] = {config_.number("entropy"), config_.number("concentration"),
                                  config_.number("variance")};
        const std::vector<double> entropy = relative(profile, &LayerProfile::entropy),
                                  concentration = relative(profile, &LayerProfile::concentration),
                                  variance = relative(profile, &LayerProfile::variance);
        std::vector<double> need;
        for (size_t i = 0; i < profile.size(); ++i)
            need.push_back(weights[0] * entropy[i] + weights[1] * (1 - concentration[i]) + weights[2] * variance[i]);
        const int64_t floor = std::max(least, floor_of(config_.amount("least").share, tokens));
        std::vector<int64_t> budgets = apportion((tokens - floor) * layers, need, most - floor);
        for (int64_t& budget : budgets) budget += floor;
        return budgets;
    }

private:
    static void check(std::span<const LayerProfile> profile, int64_t layers) {
        if (static_cast<int64_t>(profile.size()) != layers)
            refuse("adaptive_budget: the profile has " + std::to_string(profile.size()) + " layers, expected " +
                   std::to_string(layers));
        for (size_t i = 0; i < profile.size(); ++i)
            for (const double value : {profile[i].entropy, profile[i].concentration, profile[i].variance})
                if (!std::isfinite(value))
                    refuse("adaptive_budget: the profile of layer " + std::to_string(i) + " holds " +
                           std::to_string(value) + ", expected finite numbers");
    }

    Config config_;
    std::unique_ptr<Policy> selector_;
};

} // namespace

constinit const PolicyKind adaptive_budget_policy = {"adaptive_budget", true, keys, make<AdaptiveBudget>};

} // namespace winnow::cache
