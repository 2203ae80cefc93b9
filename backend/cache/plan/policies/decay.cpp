// By age: older tokens have fewer bits, and the oldest are evicted. The weight of a token is exp(-decay_lambda * age),
// with as age how many newer tokens there are; the newest of a window keep the first segment's formats and stay,
// whatever their weight. With `experts` ages say how many tokens each segment has, and the importance that the host
// tells, as under `moe`, says which of those outside the window they are.
#include <algorithm>
#include <array>
#include <cmath>

#include "cache/plan/policies/policies.hpp"

namespace winnow::cache {
namespace {

constexpr std::array keys = {
    whole_budget_key,
    turbo4_k_key,
    turbo3_v_key,
    unit_slope_k_norm_key,
    Key{"k2", Kind::format, "turbo3", "storage format of keys in the second packed segment"},
    Key{"v2", Kind::format, "turbo3", "storage format of values in the second packed segment"},
    Key{"k3", Kind::format, "turbo2", "storage format of keys in the third packed segment"},
    Key{"v3", Kind::format, "turbo2", "storage format of values in the third packed segment"},
    Key{"mode", Kind::word, "hybrid", "old tokens lose bits, are evicted, or both", "bit_reduction|eviction|hybrid"},
    Key{"window", Kind::amount, "4096", "newest tokens that keep their bits: tokens, or a share of the context"},
    Key{"decay_lambda", Kind::number, "2", "the weight of a token is exp(-decay_lambda * age)", "", 0, 1024},
    Key{"weight2", Kind::number, "0.5", "a token of less weight lies in the second packed segment; 0: there is none",
        "", 0, 1},
    Key{"weight3", Kind::number, "0.2", "a token of less weight lies in the third packed segment; 0: there is none", "",
        0, 1},
    Key{"eviction_threshold", Kind::number, "0.05", "a token of less weight is evicted", "", 0, 1},
    Key{"experts", Kind::count, "", "experts in a layer; if given, experts rank tokens instead of age; default: none",
        "", 1, 1 << 16},
    inactive_key,
    evict_inactive_key,
};

// How many of a context's ages have at least this weight: all up to one.
int64_t ages_of(double lambda, double weight, int64_t context) {
    int64_t ages = 0;
    for (int64_t others = context; others > 0;) {
        const int64_t half = others / 2;
        const bool has_it = std::exp(-lambda * static_cast<double>(ages + half)) >= weight;
        if (has_it) ages += half + 1;
        others = has_it ? others - half - 1 : half;
    }
    return ages;
}

class Decay : public Policy {
public:
    explicit Decay(Config config) : config_(std::move(config)) {
        const std::string name = config_.policy().name, where = name + ": mode=" + config_.word("mode");
        for (const char* key : {"inactive", "evict_inactive"})
            if (!ranks_by_experts() && config_.differs(key))
                refuse(name + ": " + key + "=" + spell(config_.at(key)) +
                       " is of experts, and experts= does not say how many there are: expected experts=, too");
        for (const char* key : {"budget", "eviction_threshold", "evict_inactive"})
            if (!evicts() && config_.differs(key))
                refuse(where + " evicts nothing, and " + key + "=" + spell(config_.at(key)) +
                       " would say what is evicted: expected mode=hybrid");
        for (const char* key : {"weight2", "weight3", "k2", "v2", "k3", "v3"})
            if (!reduces() && config_.differs(key))
                refuse(where + " reduces no bits, and " + key + "=" + spell(config_.at(key)) +
                       " is of a further packed segment: expected mode=hybrid");
        const double weight2 = config_.number("weight2"), weight3 = config_.number("weight3");
        if (weight2 > 0 && weight3 >= weight2)
            refuse(name + ": weight3=" + spell(weight3) + " has to be less than weight2=" + spell(weight2) +
                   ": tokens of the third packed segment are older");
    }

    Description describe(const LayerContext& context) const override {
        Description description = basic(config_, context);
        if (!ranks_by_experts()) return description;
        const int64_t newest = window(context.context); // sinks included, as in the sizes of the segments
        if (newest >= context.budget)
            refuse(config_.policy().name + (": window=" + spell(config_.at("window"))) + " covers all " +
                   std::to_string(context.budget) +
                   " tokens of a KV head, so experts= has no tokens to rank: expected a smaller window");
        rank_by_experts(description, config_);
        protect_recent(description, newest - description.sink);
        return description;
    }
    bool keeps_importance(const LayerContext&) const override { return ranks_by_experts(); }

    std::optional<Schedule> schedule(int64_t context) const override {
        const auto newer_than = [&](const char* key) {
            return std::max(window(context), ages_of(config_.number("decay_lambda"), config_.number(key), context));
        };
        Schedule schedule{evicts() ? newer_than("eviction_threshold") : context, {}};
        if (!reduces()) return schedule;
        const int64_t second = newer_than("weight2"), third = newer_than("weight3");
        if (second < std::min(third, schedule.tokens)) add(schedule, 2, second);
        if (third < schedule.tokens) add(schedule, 3, third);
        return schedule;
    }

private:
    bool ranks_by_experts() const { return config_.has("experts"); }
    int64_t window(int64_t context) const { return std::min(tokens_of(config_.amount("window"), context), context); }
    bool evicts() const { return config_.word("mode") != "bit_reduction"; }
    bool reduces() const { return config_.word("mode") != "eviction"; }

    void add(Schedule& schedule, int number, int64_t after) const {
        const auto format = [&](const char* side) { return format_of(config_.word(side + std::to_string(number))); };
        schedule.lower.push_back({format("k"), format("v"), {}, after, number});
    }

    Config config_;
};

} // namespace

constinit const PolicyKind decay_policy = {
    .name = "decay", .evicts = true, .keys = keys, .make = make<Decay>, .has_schedule = true};

} // namespace winnow::cache
