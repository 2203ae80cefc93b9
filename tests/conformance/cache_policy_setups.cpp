// A table of caches: every policy, with options that lead everywhere in its description. Which shape a case gets
// follows from its place (with_shape): new ones come last.
#include <algorithm>

#include "cache_cases.hpp"

namespace winnow::conformance {
namespace {

CacheSetup of(Policy policy) {
    CacheSetup setup;
    setup.policy = policy;
    return setup;
}

template <typename Change>
void add(std::vector<NamedSetup>& all, const char* name, Policy policy, Change change) {
    all.push_back({name, of(policy)});
    change(all.back().setup);
}

// Nothing but ages bounds what stays, unless `change` has a budget.
template <typename Change>
void add_decay(std::vector<NamedSetup>& all, const char* name, const Ages& ages, Change change) {
    add(all, name, Policy::decay, [&](CacheSetup& s) {
        s.ages = ages;
        s.budget = 0;
        change(s);
        s.set_segments_by_age();
    });
}

// A case that there is, in several packed segments.
void add_divided(std::vector<NamedSetup>& all, const char* name, const std::string& of,
                 const std::vector<LowerSegment>& lower) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const NamedSetup& each) { return each.name == of; });
    NamedSetup divided{name, found->setup};
    divided.setup.lower = lower;
    all.push_back(std::move(divided));
}

} // namespace

std::vector<NamedSetup> policy_setups() {
    std::vector<NamedSetup> all;
    add(all, "none", Policy::none, [](CacheSetup& s) { s.context = 300; });
    add(all, "window", Policy::window, [](CacheSetup& s) { s.cadence = 32; });
    add(all, "window_of_everything", Policy::window, [](CacheSetup& s) {
        s.budget = 0;
        s.context = 300;
    });
    add(all, "window_without_residual", Policy::window, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 70;
    });
    add(all, "window_without_sinks", Policy::window, [](CacheSetup& s) {
        s.sink = 0;
        s.residual = 32;
        s.budget = 65;
    });
    add(all, "random", Policy::random, [](CacheSetup& s) { s.seed = 7; });
    add(all, "random_without_residual", Policy::random, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 66;
        s.recent = 10;
    });
    add(all, "scissorhands", Policy::scissorhands, [](CacheSetup& s) { s.history = 50; });
    add(all, "scissorhands_of_a_quarter", Policy::scissorhands, [](CacheSetup& s) {
        s.drop = {1, 4};
        s.residual = 32;
        s.budget = 90;
    });
    add(all, "tova", Policy::tova, [](CacheSetup&) {});
    add(all, "tova_without_residual", Policy::tova, [](CacheSetup& s) {
        s.residual = s.grace = 0;
        s.budget = 75;
        s.recent = 20;
    });
    add(all, "external", Policy::external, [](CacheSetup&) {});
    add(all, "external_without_residual", Policy::external, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 77;
        s.recent = 30;
    });
    add(all, "h2o", Policy::h2o, [](CacheSetup& s) { s.cadence = 32; });
    add(all, "h2o_paper", Policy::h2o, [](CacheSetup& s) {
        s.statistic = Statistic::probability;
        s.sum = true;
        s.decay = 1;
    });
    add(all, "h2o_less_than_budget", Policy::h2o, [](CacheSetup& s) {
        s.heavy = 30;
        s.recent = 40;
    });
    add(all, "h2o_without_residual", Policy::h2o, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 80;
        s.cadence = 7;
    });
    add(all, "hierarchical", Policy::hierarchical, [](CacheSetup& s) {
        s.layers = 3;
        s.first = 8;
        s.recent_middle = s.recent_deep = 20;
        s.theta_middle = .5;
        s.theta_deep = .6;
    });
    add(all, "hierarchical_by_theta", Policy::hierarchical, [](CacheSetup& s) {
        s.layers = 3;
        s.theta_shallow = .2;
        s.trigger = {1, 2};
        s.recent_shallow = s.recent_middle = s.recent_deep = 16;
        s.batch = 5;
        s.grace = 2;
    });
    add(all, "adaptive_budget", Policy::adaptive_budget, [](CacheSetup& s) {
        s.layers = 3;
        s.profile = {0, 1, 0, 1, 0, 1, .5, .5, .5};
        s.residual = 32;
    });
    add(all, "adaptive_budget_of_winnow", Policy::adaptive_budget, [](CacheSetup& s) {
        s.profile = {3, .5, 0, 1, .25, 0};
        s.selector = Policy::winnow;
        s.residual = 32;
    });
    add(all, "winnow", Policy::winnow, [](CacheSetup& s) { s.cadence = 32; });
    add(all, "winnow_by_probability", Policy::winnow, [](CacheSetup& s) { s.statistic = Statistic::probability; });
    add(all, "winnow_without_residual", Policy::winnow, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 72;
        s.decay = .9;
    });
    add(all, "h2o_centered", Policy::h2o, [](CacheSetup& s) {
        s.center = true;
        s.cadence = 32;
    });
    add(all, "winnow_centered", Policy::winnow, [](CacheSetup& s) {
        s.center = true;
        s.residual = 32;
    });
    add(all, "winnow_with_grace", Policy::winnow, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 90;
        s.recent = 2;
        s.grace = 40;
    });
    add(all, "winnow_as_window", Policy::winnow, [](CacheSetup& s) {
        s.context = 250;
        s.budget = 130;
    });
    add(all, "h2o_every_third_step", Policy::h2o, [](CacheSetup& s) { s.every = 3; });
    add(all, "winnow_every_fourth_step", Policy::winnow, [](CacheSetup& s) {
        s.every = 4;
        s.layers = 3;
    });
    add(all, "window_of_two_segments", Policy::window, [](CacheSetup& s) { s.lower = {{{1, 4}}}; });
    add(all, "winnow_of_three_segments", Policy::winnow, [](CacheSetup& s) { s.lower = {{{1, 4}}, {{1, 8}}}; });
    add_divided(all, "h2o_of_two_segments_without_residual", "h2o_without_residual", {{{1, 2}}});
    add(all, "mixed", Policy::mixed, [](CacheSetup& s) { s.lower = {{{2, 5}}}; });
    add(all, "mixed_of_three_segments", Policy::mixed, [](CacheSetup& s) {
        s.residual = 32;
        s.lower = {{{1, 4}}, {{1, 4}}};
    });
    add(all, "none_of_three_segments", Policy::none, [](CacheSetup& s) {
        s.context = 250;
        s.lower = {{{1, 4}}, {{1, 3}}};
    });
    add_divided(all, "scissorhands_of_two_segments", "scissorhands", {{{3, 8}}});
    add(all, "winnow_centered_of_two_segments", Policy::winnow, [](CacheSetup& s) {
        s.center = true;
        s.residual = 32;
        s.lower = {{{1, 3}}};
    });
    add_divided(all, "random_of_three_segments_without_residual", "random_without_residual", {{{1, 3}}, {{1, 3}}});
    add_divided(all, "hierarchical_of_two_segments", "hierarchical", {{{1, 4}}});
    add(all, "external_of_two_segments", Policy::external, [](CacheSetup& s) { s.lower = {{{1, 4}}}; });
    add(all, "adaptive_budget_of_two_segments", Policy::adaptive_budget, [](CacheSetup& s) {
        s.layers = 3;
        s.profile = {0, 1, 0, 1, 0, 1, .5, .5, .5};
        s.residual = 16;
        s.lower = {{{1, 4}}};
    });
    add(all, "window_elastic_of_keys", Policy::window, [](CacheSetup& s) { s.zeroing = {.35, 0, 64, 64, 128}; });
    add_decay(all, "decay", {.window = 16, .lambda = .0231}, [](CacheSetup& s) { s.residual = 8; });
    add_decay(all, "decay_to_fewer_bits", {.mode = "bit_reduction", .window = 90, .lambda = .01}, [](CacheSetup& s) {
        s.context = 250;
        s.residual = 32;
    });
    add_decay(all, "decay_out_of_a_window", {.window = 110}, [](CacheSetup&) {});
    add_decay(all, "decay_by_eviction", {.mode = "eviction", .window = 0, .lambda = .02}, [](CacheSetup&) {});
    add_decay(all, "decay_without_residual", {.window = 10, .lambda = .02, .weight3 = 0}, [](CacheSetup& s) {
        s.residual = 0;
        s.cadence = 7;
    });
    add_decay(all, "decay_inside_a_budget", {.window = 85, .lambda = .01}, [](CacheSetup& s) { s.budget = 128; });
    add(all, "learned", Policy::learned, [](CacheSetup& s) { s.layers = 3; });
    add(all, "learned_without_residual", Policy::learned, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 79;
        s.recent = 20;
        s.grace = 3;
    });
    add(all, "winnow_sparse_v", Policy::winnow, [](CacheSetup& s) { s.sparse_v = .003; });
    add(all, "winnow_elastic", Policy::winnow, [](CacheSetup& s) { s.zeroing = {.45, .5, 10, 16, 40}; });
    add(all, "none_elastic", Policy::none, [](CacheSetup& s) {
        s.context = 300;
        s.layers = 3;
        s.zeroing = {.5, .5, 4, 20, 0};
    });
    add_divided(all, "learned_of_two_segments", "learned", {{{1, 4}}});
    add(all, "moe", Policy::moe, [](CacheSetup&) {});
    add(all, "moe_without_inactive", Policy::moe, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 83;
        s.recent = 25;
        s.experts = 5;
        s.inactive = {1, 2};
        s.evict_inactive = true;
    });
    add(all, "moe_of_two_segments", Policy::moe, [](CacheSetup& s) { s.lower = {{{1, 4}}}; });
    add(all, "none_of_own_formats", Policy::none, [](CacheSetup& s) {
        s.context = 300;
        s.layers = 3;
        s.own_formats = {{"fine", {0, 2}}, {"coarse", {1}}};
    });
    add(all, "h2o_of_own_formats_without_residual", Policy::h2o, [](CacheSetup& s) {
        s.residual = 0;
        s.budget = 80;
        s.own_formats = {{"fine", {1}}};
    });
    add(all, "window_of_own_formats_in_two_segments", Policy::window, [](CacheSetup& s) {
        s.lower = {{{1, 4}}};
        s.own_formats = {{"fine", {0}}, {"coarse", {1}}};
    });
    add(all, "winnow_elastic_of_own_formats", Policy::winnow, [](CacheSetup& s) {
        s.zeroing = {.45, .5, 10, 16, 40};
        s.own_formats = {{"fine", {0}}, {"coarse", {1}}};
    });
    add(all, "h2o_of_heads_of_own_formats", Policy::h2o, [](CacheSetup& s) {
        s.kv_heads = 3;
        s.own_formats = {{"fine", {}, {{0, 1}, {1, 5}}}, {"coarse", {}, {{0, 4}}}};
    });
    add(all, "random_of_heads_in_two_segments", Policy::random, [](CacheSetup& s) {
        s.lower = {{{1, 4}}};
        s.own_formats = {{"coarse", {}, {{0, 2}, {1, 1}}}};
    });
    add(all, "winnow_elastic_of_heads_of_own_formats", Policy::winnow, [](CacheSetup& s) {
        s.center = false;
        s.zeroing = {.45, .5, 10, 16, 40};
        s.own_formats = {{"fine", {}, {{0, 1}}}, {"coarse", {1}}};
    });
    return all;
}

} // namespace winnow::conformance
