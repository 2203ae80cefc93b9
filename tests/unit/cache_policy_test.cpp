// What each policy describes: the presets' numbers, tiers, thresholds, budgets of layers; and what a head then holds
// over a long run.
#include "cache/plan/policy.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <random>
#include <set>

#include "alike_layers.hpp"
#include "cache/plan/budget.hpp"
#include "cache/plan/config.hpp"
#include "device/device.hpp"
#include "device/select.hpp"

namespace winnow::cache {
namespace {

// The description for a model with 32 layers, a context of 2048, a residual window of 48 and a cadence of 32.
Description describe(const std::string& config, int64_t budget, int64_t layer = 0, double pressure = 0) {
    return make_policy(parse(config))->describe({layer, 32, 2048, budget, 48, 32, pressure});
}

TEST(cache_policy, window_and_none_go_by_age) {
    for (const char* name : {"window", "none", "winnow"}) {
        const Description d = describe(name, 1024);
        EXPECT_EQ(d.importance.statistic, Statistic::none) << name;
        EXPECT_EQ(d.ranking, Ranking::age);
        EXPECT_EQ(d.sink, 4);
        EXPECT_EQ(d.recent, 16); // what the residual window holds in any case
        EXPECT_EQ(d.budget, 1024);
        EXPECT_EQ(d.target, 1024);
        EXPECT_EQ(d.cadence, 32);
        EXPECT_EQ(d.context, 2048);
        EXPECT_EQ(d.threshold, std::nullopt);
    }
}

TEST(cache_policy, random_differs_between_layers_and_seeds) {
    EXPECT_EQ(describe("random", 512).ranking, Ranking::random);
    EXPECT_EQ(describe("random", 512).recent, 256 - 32);
    EXPECT_NE(describe("random", 512, 0).seed, describe("random", 512, 1).seed);
    EXPECT_NE(describe("random", 512).seed, describe("random:seed=1", 512).seed);
    EXPECT_EQ(describe("random:seed=1", 512), describe("random:seed=1", 512));
}

TEST(cache_policy, learned_ranks_by_prediction) {
    const Description d = describe("learned", 512);
    EXPECT_EQ(d.importance, (Importance{Statistic::probability, Accumulation::decayed_sum, .99}));
    EXPECT_EQ(d.ranking, Ranking::prediction);
    EXPECT_EQ(d.recent, 128 - 32);
    EXPECT_EQ(d.grace, 8);
    EXPECT_EQ(describe("learned:recent=200,grace=0", 512).recent, 200 - 32);
}

TEST(cache_policy, scissorhands_drops_half) {
    const Description d = describe("scissorhands", 512);
    EXPECT_EQ(d.importance, (Importance{Statistic::above_mean, Accumulation::decayed_sum, 1 - 1. / 400}));
    EXPECT_EQ(d.target, 256);
    EXPECT_EQ(d.recent, 16); // of the residual window: more than the policy's 10
    EXPECT_EQ(d.grace, 8);
    EXPECT_EQ(describe("scissorhands:recent=99,drop=1/3", 512).recent, 99);
    EXPECT_EQ(describe("scissorhands:recent=99,drop=1/3", 512).target, 512 - 170);
}

TEST(cache_policy, tova_goes_by_the_last_query) {
    const Description d = describe("tova", 512);
    EXPECT_EQ(d.importance, (Importance{Statistic::probability, Accumulation::decayed_sum, 0}));
    EXPECT_EQ(d.ranking, Ranking::importance);
    EXPECT_EQ(d.target, 512);
    EXPECT_EQ(d.recent, 16); // the residual window's
    EXPECT_EQ(d.grace, 8);
    EXPECT_EQ(describe("tova:recent=1/4", 512).recent, 128 - 32);
}

TEST(cache_policy, external_adds_nothing_of_its_own) {
    const Description d = describe("external", 512);
    EXPECT_EQ(d.importance, Importance{});
    EXPECT_EQ(d.ranking, Ranking::importance);
    EXPECT_EQ(d.target, 512);
    EXPECT_EQ(d.recent, 128 - 32);
    EXPECT_EQ(d.grace, 0);
    EXPECT_EQ(describe("external:recent=50", 512).recent, 50 - 32);
}

TEST(cache_policy, moe_adds_nothing_of_its_own) {
    const Description d = describe("moe", 512);
    EXPECT_EQ(d, describe("external", 512));
    const Description evicting = describe("moe:evict_inactive=on,recent=50", 512);
    EXPECT_EQ(evicting.recent, 50 - 32);
    EXPECT_EQ(evicting.target, 0);
    EXPECT_EQ(evicting.trigger, (Share{0, 1}));
    EXPECT_EQ(evicting.threshold, 0); // what is below 0
}

TEST(cache_policy, decay_goes_by_age_or_by_experts_outside_of_its_window) {
    const Description by_age = describe("decay:window=1/8", 1024);
    EXPECT_EQ(by_age, describe("window", 1024));
    const Description by_experts = describe("decay:window=1/8,experts=9", 1024);
    EXPECT_EQ(by_experts.importance, Importance{});
    EXPECT_EQ(by_experts.ranking, Ranking::importance);
    EXPECT_EQ(by_experts.sink + by_experts.recent + by_experts.cadence, 256); // when a head is fullest
    EXPECT_EQ(by_experts.trigger, (Share{1, 1}));
    const Description evicting = describe("decay:window=1/8,experts=9,evict_inactive=on", 1024);
    EXPECT_EQ(evicting.trigger, (Share{0, 1}));
    EXPECT_EQ(evicting.target, 0);
    EXPECT_EQ(evicting.threshold, 0);
    EXPECT_NO_THROW(describe("decay:window=1023,experts=9", 1024));
    EXPECT_THROW(describe("decay:window=1024,experts=9", 1024), Error);
    EXPECT_THROW(describe("decay:experts=9", 2048), Error); // of which the window is all
}

TEST(cache_policy, h2o_is_as_published_unless_told) {
    const Description d = describe("h2o", 256);
    EXPECT_EQ(d.importance, (Importance{Statistic::score_magnitude, Accumulation::ema, .95}));
    EXPECT_EQ(d.ranking, Ranking::importance);
    EXPECT_EQ(d.target, 256);
    EXPECT_EQ(parse("h2o").budget().share, (Share{1, 4}));
    const Description paper = describe("h2o:statistic=probability,accumulation=sum,alpha=1", 256);
    EXPECT_EQ(paper.importance, (Importance{Statistic::probability, Accumulation::decayed_sum, 1}));
}

TEST(cache_policy, h2o_presets_are_scaled_to_the_budget) {
    const struct {
        const char* config;
        int64_t budget, heavy, recent; // when the cache is fullest
    } rows[] = {{"h2o:preset=recent", 256, 32, 220},   {"h2o:preset=balanced", 256, 64, 188},
                {"h2o:preset=heavy", 256, 128, 124},   {"h2o", 256, 128, 124},
                {"h2o:preset=recent", 512, 64, 444},   {"h2o:preset=heavy", 1000, 500, 496},
                {"h2o:heavy=100", 256, 100, 152},      {"h2o:recent=100", 256, 152, 100},
                {"h2o:heavy=1/8,sink=0", 256, 32, 224}};
    for (const auto& [config, budget, heavy, recent] : rows) {
        const Description d = describe(config, budget);
        EXPECT_EQ(d.recent, recent - d.cadence) << config; // those of the next cadence come to it
        EXPECT_EQ(budget - d.cadence - d.sink - d.recent, heavy) << config;
    }
    // Less than the budget together: an eviction pass leaves their sum.
    const Description d = describe("h2o:heavy=256,recent=512", 1024);
    EXPECT_EQ(d.target, 4 + 256 + 512);
    EXPECT_EQ(d.recent, 512);
    EXPECT_THROW(describe("h2o:heavy=200", 128), Error);
}

TEST(cache_policy, hierarchical_divides_the_layers_in_three) {
    const auto policy = make_policy(parse("hierarchical"));
    const auto tier = [&](int64_t layer, int64_t layers) {
        const Description d = policy->describe({layer, layers, 2048, 1024, 48, 32, 0});
        return d.ranking == Ranking::age ? 'S' : d.most > 0 ? 'M' : 'D';
    };
    const auto tiers = [&](int64_t layers) {
        std::string all;
        for (int64_t layer = 0; layer < layers; ++layer) all += tier(layer, layers);
        return all;
    };
    EXPECT_EQ(tiers(32), std::string(11, 'S') + std::string(11, 'M') + std::string(10, 'D')); // the article's model
    EXPECT_EQ(tiers(30), std::string(10, 'S') + std::string(10, 'M') + std::string(10, 'D'));
    EXPECT_EQ(tiers(3), "SMD");
    EXPECT_EQ(tiers(1), "S");
}

TEST(cache_policy, hierarchical_tiers_have_the_articles_numbers) {
    const Importance ema{Statistic::probability, Accumulation::ema, 1 - .3};
    const Description shallow = describe("hierarchical", 1024, 0), middle = describe("hierarchical", 1024, 15),
                      deep = describe("hierarchical", 1024, 31);
    for (const Description& d : {shallow, middle, deep}) {
        EXPECT_EQ(d.trigger, (Share{7, 10}));
        EXPECT_EQ(d.target, 0);
        EXPECT_EQ(d.cadence, 32);
        EXPECT_EQ(d.quantile, .99);
    }
    EXPECT_EQ(shallow.recent, 128);
    EXPECT_EQ(shallow.threshold, std::nullopt);
    EXPECT_EQ(shallow.importance.statistic, Statistic::none);
    EXPECT_EQ(middle.importance, ema);
    EXPECT_EQ(middle.threshold, .15);
    EXPECT_EQ(middle.recent, 128);
    EXPECT_EQ(middle.eligible_first, 64);
    EXPECT_EQ(middle.most, 16);
    EXPECT_EQ(ceil_of(middle.eligible_from, 1000), 250);
    EXPECT_EQ(ceil_of(middle.eligible_until, 1000), 750);
    const Description narrow = describe("hierarchical:candidates=1/5", 1024, 15); // from 2/5 to 3/5
    EXPECT_EQ(ceil_of(narrow.eligible_from, 1000), 400);
    EXPECT_EQ(ceil_of(narrow.eligible_until, 1000), 600);
    EXPECT_EQ(deep.importance, ema);
    EXPECT_EQ(deep.threshold, .25);
    EXPECT_EQ(deep.recent, 256);
    EXPECT_EQ(deep.most_share, (Share{1, 10}));
    EXPECT_EQ(describe("hierarchical", 256, 31).recent, 128);                 // at most half of a small budget ...
    EXPECT_EQ(describe("hierarchical:recent_deep=200", 256, 31).recent, 200); // ... unless it is said
}

TEST(cache_policy, hierarchical_profiles_and_thresholds) {
    using Thetas = std::vector<std::optional<double>>;
    const auto thetas = [](const std::string& options) {
        Thetas all;
        for (const int64_t layer : {0, 15, 31})
            all.push_back(describe("hierarchical" + options, 1024, layer).threshold);
        return all;
    };
    EXPECT_EQ(thetas(":profile=code"), (Thetas{std::nullopt, .10, .25}));
    EXPECT_EQ(thetas(":profile=summarize"), (Thetas{std::nullopt, .30, .25}));
    EXPECT_EQ(thetas(":profile=long_form"), (Thetas{std::nullopt, .15, .125}));
    EXPECT_EQ(thetas(":thresholds=conservative"), (Thetas{.20, .30, .35}));
    EXPECT_EQ(thetas(":thresholds=conservative,theta_shallow=0,theta_deep=.5"), (Thetas{0, .30, .5}));
    EXPECT_EQ(describe("hierarchical:profile=long_form", 2048, 31).recent, 512);
    EXPECT_EQ(describe("hierarchical:profile=code", 1024, 15).most, 8);
    EXPECT_EQ(describe("hierarchical:profile=code,batch=5", 1024, 15).most, 5);
    EXPECT_EQ(describe("hierarchical:theta_shallow=.1", 1024, 0).ranking, Ranking::importance);
    EXPECT_EQ(describe("hierarchical:theta_shallow=0", 1024, 0).ranking, Ranking::importance);
}

// No theta at all and a theta of 0 are opposites: any importance is small, and none is.
TEST(cache_policy, hierarchical_evicts_nothing_early_at_a_theta_of_zero) {
    std::vector<Slot> slots;
    for (int64_t position = 0; position < 900; ++position)
        slots.push_back({position, 1 + static_cast<float>(position % 7), 100, 1, false});
    for (const int64_t layer : {0, 15, 31}) {
        const Description d = describe("hierarchical:theta_shallow=0,theta_middle=0,theta_deep=0", 1024, layer);
        const Demand wanted = demand(d, 900, 900, 32);
        EXPECT_EQ(wanted.required, 0);
        EXPECT_GT(wanted.allowed, 0);
        EXPECT_TRUE(select(d, slots, 900, 0, wanted).victims.empty()) << layer;
    }
}

TEST(cache_policy, hierarchical_answers_memory_pressure) {
    EXPECT_EQ(describe("hierarchical", 1024, 15, .7).trigger, (Share{7, 10}));
    EXPECT_EQ(describe("hierarchical", 1024, 15, .71).trigger, (Share{0, 1}));
    EXPECT_EQ(demand(describe("hierarchical", 1024, 15, .71), 300, 300, 32), (Demand{0, 16}));
    EXPECT_EQ(demand(describe("hierarchical", 1024, 15, 0), 300, 300, 32), (Demand{0, 0}));
}

TEST(cache_policy, winnow_is_a_window_from_half_of_the_context) {
    const Description d = describe("winnow", 512);
    EXPECT_EQ(d.importance, (Importance{Statistic::probability_squared, Accumulation::decayed_sum, .99}));
    EXPECT_EQ(d.ranking, Ranking::importance_value_distance);
    EXPECT_EQ(d.recent, 128 - 32);
    EXPECT_EQ(describe("winnow", 1023).ranking, Ranking::importance_value_distance);
    EXPECT_EQ(describe("winnow", 1024).ranking, Ranking::age);
    EXPECT_EQ(describe("winnow:window_from=1/1", 1024).ranking, Ranking::importance_value_distance);
}

TEST(cache_policy, importance_is_announced_where_it_is_described) {
    const char* const configs[] = {"hierarchical:theta_shallow=0", "hierarchical:thresholds=conservative",
                                   "adaptive_budget:policy=winnow", "winnow:window_from=1/8"};
    std::vector<std::string> all(std::begin(configs), std::end(configs));
    for (const PolicyKind* kind : policies()) all.emplace_back(kind->name);
    const std::set<std::string> of_the_host = {"external", "moe", "decay:window=9,experts=8"}; // nothing is added to it
    all.emplace_back("decay:window=9,experts=8");
    for (const std::string& config : all)
        for (const int64_t layer : {0, 10, 11, 31})
            for (const int64_t budget : {255, 256, 1023, 1024, 2048}) {
                const LayerContext context{layer, 32, 2048, budget, 48, 32, 0};
                const auto policy = make_policy(parse(config));
                EXPECT_EQ(policy->keeps_importance(context),
                          of_the_host.contains(config) ||
                              policy->describe(context).importance.statistic != Statistic::none)
                    << config << " " << layer << " " << budget;
            }
}

// ---- Budgets of layers ---------------------------------------------------------------------------------------------

std::vector<int64_t> budgets(const std::string& config, const std::vector<LayerProfile>& profile, int64_t tokens,
                             int64_t least = 1, int64_t most = 1 << 20) {
    return make_policy(parse(config))->budgets(static_cast<int64_t>(profile.size()), tokens, least, most, profile);
}

TEST(cache_policy, budgets_are_flat_unless_they_adapt) {
    for (const PolicyKind* kind : policies())
        if (kind != find_policy("adaptive_budget")) {
            EXPECT_EQ(make_policy(parse(kind->name))->budgets(3, 77, 9, 80, {}), (std::vector<int64_t>{77, 77, 77}));
        }
}

TEST(cache_policy, adaptive_budgets_add_up_exactly) {
    std::mt19937 random(4);
    const auto number = [&](double most) { return std::uniform_real_distribution<>(-most, most)(random); };
    for (int round = 0; round < 2000; ++round) {
        std::vector<LayerProfile> profile(1 + random() % 40);
        const double scales[] = {1e-300, 1, 1e300, std::numeric_limits<double>::max() / 2};
        for (LayerProfile& each : profile)
            each = {number(scales[random() % 4]), number(1), random() % 2 != 0 ? number(1) : 0};
        const int64_t tokens = 1 + static_cast<int64_t>(random() % 4000);
        const int64_t least = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(tokens));
        const int64_t most = tokens + static_cast<int64_t>(random() % 3 * (random() % 1000)); // often no more than flat
        const std::vector<int64_t> given = budgets("adaptive_budget", profile, tokens, least, most);
        EXPECT_EQ(std::accumulate(given.begin(), given.end(), int64_t{0}),
                  tokens * static_cast<int64_t>(profile.size()));
        EXPECT_GE(*std::min_element(given.begin(), given.end()), std::max(least, tokens / 2));
        EXPECT_LE(*std::max_element(given.begin(), given.end()), most);
        EXPECT_EQ(budgets("adaptive_budget", profile, tokens, least, most), given);
    }
}

TEST(cache_policy, adaptive_budgets_follow_the_need) {
    // Spread out, as the other, peaked, as the other but moving.
    const std::vector<LayerProfile> profile = {{3, .2, 0}, {2, .3, 0}, {1, .4, 0}, {2, .3, 1}};
    const std::vector<int64_t> given = budgets("adaptive_budget", profile, 100);
    EXPECT_GT(given[0], given[1]);
    EXPECT_GT(given[1], given[2]);
    EXPECT_GT(given[3], given[1]);
    EXPECT_EQ(given[2], 50); // the least
    EXPECT_EQ(budgets("adaptive_budget:variance=0", profile, 100)[1],
              budgets("adaptive_budget:variance=0", profile, 100)[3]);
    EXPECT_EQ(budgets("adaptive_budget:least=1/1", profile, 100), (std::vector<int64_t>(4, 100)));
    EXPECT_EQ(budgets("adaptive_budget", std::vector<LayerProfile>(3), 77), (std::vector<int64_t>(3, 77)));
}

TEST(cache_policy, adaptive_budgets_pass_on_what_a_layer_cannot_use) {
    const std::vector<LayerProfile> profile = {{0, 0, 0}, {1, 0, 0}, {2, 0, 0}, {3, 0, 0}};
    const std::string config = "adaptive_budget:concentration=0,variance=0"; // needs of 0, 1/3, 2/3, 1
    const auto with_most = [&](int64_t most) { return budgets(config, profile, 100, 1, most); };
    EXPECT_EQ(with_most(1000), (std::vector<int64_t>{50, 83, 117, 150}));
    EXPECT_EQ(with_most(150), (std::vector<int64_t>{50, 83, 117, 150}));
    EXPECT_EQ(with_most(130), (std::vector<int64_t>{50, 90, 130, 130}));
    EXPECT_EQ(with_most(120), (std::vector<int64_t>{50, 110, 120, 120}));
    EXPECT_EQ(with_most(101), (std::vector<int64_t>{97, 101, 101, 101})); // the rest needs nothing, and gets it
    EXPECT_EQ(with_most(100), (std::vector<int64_t>(4, 100)));
}

// A weight so small that it times a half is 0.
TEST(cache_policy, adaptive_budgets_are_flat_where_nothing_has_weight) {
    const std::string config = "adaptive_budget:entropy=5e-324,concentration=0,variance=0";
    EXPECT_EQ(budgets(config, std::vector<LayerProfile>(3), 77), (std::vector<int64_t>(3, 77)));
    EXPECT_EQ(budgets(config, {{1, 0, 0}, {2, 0, 0}}, 100), (std::vector<int64_t>{50, 150}));
}

TEST(cache_policy, adaptive_budget_refuses_a_bad_profile_and_judges_as_another) {
    const auto policy = make_policy(parse("adaptive_budget:policy=winnow,sink=7"));
    const std::vector<LayerProfile> two(2), broken = {{1, 1, 1}, {1, std::numeric_limits<double>::quiet_NaN(), 1}};
    EXPECT_THROW(policy->budgets(3, 100, 1, 100, two), Error);
    EXPECT_THROW(policy->budgets(2, 100, 1, 100, {}), Error);
    EXPECT_THROW(policy->budgets(2, 100, 1, 100, broken), Error);
    const LayerContext context{3, 32, 2048, 300, 48, 32, 0};
    EXPECT_EQ(policy->describe(context), make_policy(parse("winnow:sink=7"))->describe(context));
}

// ---- A head over a long run ----------------------------------------------------------------------------------------

// Tokens come one by one, each with a lasting importance, and every cadence the head has an eviction pass. What every
// policy has to hold at any time, and what the head has when it is fullest.
std::vector<Slot> run(const Config& config, int64_t layer, int64_t length) {
    const AlikeLayers shape{32, 1, 64, 64, 4096}; // no run is longer than this context
    const Plan made = plan(config, shape);
    const Description d = make_policy(config)->describe(context_of(made, shape, layer));
    std::mt19937 random(9);
    std::vector<Slot> slots, fullest;
    for (int64_t seen = 0; seen < length; ++seen) {
        if (seen % d.cadence == 0) {
            const Selection selection =
                select(d, slots, seen, 0, demand(d, static_cast<int64_t>(slots.size()), seen, d.cadence));
            EXPECT_EQ(selection.shortfall, 0) << to_string(config);
            const std::set<size_t, std::greater<>> victims(selection.victims.begin(), selection.victims.end());
            for (const size_t victim : victims) slots.erase(slots.begin() + static_cast<std::ptrdiff_t>(victim));
        }
        const float importance = std::uniform_real_distribution<float>(0, 1)(random);
        slots.push_back({seen, importance, 0, importance, seen == 100});
        for (Slot& slot : slots) ++slot.queries_seen;
        EXPECT_LE(static_cast<int64_t>(slots.size()), d.budget) << to_string(config);
        if (slots.size() >= fullest.size()) fullest = slots;
    }
    for (const std::vector<Slot>* resident : {&slots, &fullest}) {
        const auto has = [&](int64_t position) {
            return std::any_of(resident->begin(), resident->end(),
                               [&](const Slot& slot) { return slot.position == position; });
        };
        for (int64_t position = 0; position < d.sink; ++position) EXPECT_TRUE(has(position)) << to_string(config);
        EXPECT_TRUE(has(100)) << to_string(config); // the anchor
        for (int64_t back = 0; back < d.recent; ++back) EXPECT_TRUE(has(resident->back().position - back));
    }
    return fullest;
}

TEST(cache_policy, budgets_hold_and_protection_holds_over_a_long_run) {
    for (const PolicyKind* kind : policies()) {
        if (!kind->evicts || std::string_view(kind->name) == "adaptive_budget") continue; // which needs a profile
        const std::string window = kind->has_schedule ? ",window=1/64" : "";
        for (const char* budget : {"64", "1/16", "512"})
            for (const char* residual : {"", ",residual=0", ",residual=16"})
                for (const int64_t layer : {0, 15, 31})
                    run(parse(std::string(kind->name) + ":budget=" + budget + residual + window), layer, 3000);
    }
}

// Whatever the context is: its last eviction pass comes before fewer tokens than a cadence.
TEST(cache_policy, nothing_goes_where_the_whole_context_fits) {
    for (const PolicyKind* kind : policies())
        for (const int64_t context : {97, 100, 333, 2048}) {
            const std::string name = kind->name;
            const AlikeLayers shape{3, 1, 64, 64, context};
            const Config config = parse(name + (kind->evicts ? ":budget=1/1" : ""));
            const std::vector<LayerProfile> profile = {{1, 2, 0}, {2, 3, 0}, {5, 4, 1}};
            const Plan made = plan(config, shape, profile);
            int64_t evicts_early = 0;
            for (int64_t layer = 0; layer < 3; ++layer) {
                const Description d = make_policy(config)->describe(context_of(made, shape, layer));
                for (int64_t seen = 0; seen <= context; seen += d.cadence) {
                    const Demand wanted = demand(d, seen, seen, d.cadence);
                    EXPECT_EQ(wanted.required, 0) << name << " " << context << " " << seen;
                    evicts_early += wanted.allowed > 0 ? 1 : 0;
                }
            }
            if (name == "hierarchical") { // by design, from 70% on
                EXPECT_GT(evicts_early, 0);
            } else {
                EXPECT_EQ(evicts_early, 0) << name << " " << context;
            }
        }
}

TEST(cache_policy, h2o_holds_its_heavy_and_recent_when_fullest) {
    const std::vector<Slot> resident = run(parse("h2o:budget=256,preset=balanced,grace=0"), 0, 2048);
    ASSERT_EQ(resident.size(), 256u);
    const int64_t newest = resident.back().position;
    int64_t recent = 0, heavy = 0;
    for (const Slot& slot : resident) {
        if (slot.position > newest - 188) {
            ++recent;
        } else if (slot.position >= 4 && slot.position != 100) {
            ++heavy;
            EXPECT_GT(slot.importance, .9f); // 63 of some 1800
        }
    }
    EXPECT_EQ(recent, 188);
    EXPECT_EQ(heavy, 63); // and the anchor
}

TEST(cache_policy, hierarchical_evicts_less_in_deeper_layers) {
    const Config config = parse("hierarchical:budget=1024");
    const size_t shallow = run(config, 0, 2048).size(), middle = run(config, 15, 2048).size(),
                 deep = run(config, 31, 2048).size();
    EXPECT_LE(shallow, 736u); // it begins before 70% of the budget is passed
    EXPECT_GT(middle, 1024u * 7 / 10);
    EXPECT_GT(deep, 1024u * 7 / 10);
}

} // namespace
} // namespace winnow::cache
