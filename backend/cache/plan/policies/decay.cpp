// By age alone: older tokens have fewer bits, and the oldest are evicted. The weight of a token is exp(-decay_lambda *
// age), with as age how many newer tokens there are; the newest of a window keep the first segment's formats and stay,
// whatever their weight.
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
    Key{"k2", Kind::format, "turbo3", "storage format of keys there"},
    Key{"v2", Kind::format, "turbo3", "storage format of values there"},
    Key{"k3", Kind::format, "turbo2", "storage format of keys there"},
    Key{"v3", Kind::format, "turbo2", "storage format of values there"},
    Key{"mode", Kind::word, "hybrid", "whether old tokens lose bits, are evicted, or both",
        "bit_reduction|eviction|hybrid"},
    Key{"window", Kind::amount, "4096", "newest tokens that stay as they are: tokens or a share of the context"},
    Key{"decay_lambda", Kind::number, "2", "the weight of a token is exp(-decay_lambda * age)", "", 0, 1024},
    Key{"weight2", Kind::number, "0.5", "a token of less weight is in the second packed segment; 0: there is none", "",
        0, 1},
    Key{"weight3", Kind::number, "0.2", "a token of less weight is in the third packed segment; 0: there is none", "",
        0, 1},
    Key{"eviction_threshold", Kind::number, "0.05", "a token of less weight is evicted", "", 0, 1},
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
        const std::string where = config_.policy().name + (": mode=" + config_.word("mode"));
        for (const char* key : {"budget", "eviction_threshold"})
            if (!evicts() && config_.differs(key))
                refuse(where + " evicts nothing, and " + key + "=" + spell(config_.at(key)) +
                       " would say what is evicted: expected mode=hybrid");
        for (const char* key : {"weight2", "weight3", "k2", "v2", "k3", "v3"})
            if (!reduces() && config_.differs(key))
                refuse(where + " reduces no bits, and " + key + "=" + spell(config_.at(key)) +
                       " is of a further packed segment: expected mode=hybrid");
        const double weight2 = config_.number("weight2"), weight3 = config_.number("weight3");
        if (weight2 > 0 && weight3 >= weight2)
            refuse(std::string(config_.policy().name) + ": weight3=" + spell(weight3) +
                   " is of tokens that are older than those of weight2=" + spell(weight2) + ": expected less than it");
    }

    Description describe(const LayerContext& context) const override { return basic(config_, context); }
    bool keeps_importance(const LayerContext&) const override { return false; }

    std::optional<Schedule> schedule(int64_t context) const override {
        const Amount amount = config_.amount("window");
        const int64_t window = std::min(tokens_of(amount, context), context);
        const auto newer_than = [&](const char* key) {
            return std::max(window, ages_of(config_.number("decay_lambda"), config_.number(key), context));
        };
        Schedule schedule{evicts() ? newer_than("eviction_threshold") : context, {}};
        if (!reduces()) return schedule;
        const int64_t second = newer_than("weight2"), third = newer_than("weight3");
        if (second < std::min(third, schedule.tokens)) add(schedule, 2, second);
        if (third < schedule.tokens) add(schedule, 3, third);
        return schedule;
    }

private:
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
