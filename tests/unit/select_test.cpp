// Eviction passes: whom select evicts, against a definition written another way, over random and hostile slots.
#include "device/select.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <set>

namespace winnow {
namespace {

using Random = std::mt19937;

constexpr float nan_value = std::numeric_limits<float>::quiet_NaN();
constexpr float infinite = std::numeric_limits<float>::infinity();

int64_t below(Random& random, int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random); }

Share random_share(Random& random) {
    const int64_t whole = 1 + below(random, 8);
    return {below(random, whole + 1), whole};
}

Description random_description(Random& random) {
    Description description;
    description.ranking = static_cast<Ranking>(below(random, 5));
    description.seed = random();
    description.sink = below(random, 6);
    description.recent = below(random, 20);
    description.grace = below(random, 4);
    description.budget = 20 + below(random, 60);
    description.trigger = random_share(random);
    description.target = below(random, description.budget + 1);
    description.most = below(random, 2) * below(random, 20);
    if (below(random, 2) != 0) description.most_share = random_share(random);
    if (below(random, 2) != 0) description.eligible_from = random_share(random);
    if (below(random, 2) != 0) description.eligible_until = random_share(random);
    description.eligible_first = below(random, 2) * below(random, 30);
    const std::optional<double> thresholds[] = {std::nullopt, std::nullopt, 0, .1, .5, 1, 2};
    description.threshold = thresholds[below(random, 7)];
    const double quantiles[] = {0, .5, .99, 1};
    description.quantile = quantiles[below(random, 4)];
    return description;
}

std::vector<Slot> random_slots(Random& random, int64_t seen) {
    const float hostile[] = {0, -0.0f, nan_value, infinite, 1, 1, 1e-40f, 3e38f};
    const auto number = [&] {
        return below(random, 3) == 0 ? hostile[below(random, 8)] : std::uniform_real_distribution<float>(0, 4)(random);
    };
    std::vector<Slot> slots;
    for (int64_t i = below(random, 80); i > 0; --i)
        slots.push_back({below(random, seen), number(), below(random, 20), number(), below(random, 12) == 0,
                         static_cast<double>(number())});
    return slots;
}

// ---- The definition, once more -------------------------------------------------------------------------------------

bool stays(const Description& d, const Slot& slot, int64_t seen) {
    if (slot.anchor) return true;
    if (slot.position < d.sink) return true;
    if (slot.position + d.recent >= seen) return true;
    return slot.queries_seen < d.grace;
}

// In long double, NaN as the least. Exact for products of two floats.
long double rank(const Description& d, const Slot& slot, int64_t head) {
    const long double nothing = -std::numeric_limits<long double>::infinity();
    const long double importance = std::isnan(slot.importance) ? nothing : slot.importance;
    long double value = importance;
    if (d.ranking == Ranking::age) value = slot.position;
    if (d.ranking == Ranking::random) value = random_rank(d.seed, head, slot.position);
    if (d.ranking == Ranking::prediction) value = slot.prediction;
    if (d.ranking == Ranking::importance_value_distance) value = importance * slot.value_distance;
    return std::isnan(value) ? nothing : value;
}

bool within(const Description& d, const Slot& slot, int64_t seen) {
    const auto p = static_cast<double>(slot.position), n = static_cast<double>(seen);
    const auto share = [](const Share& s) { return static_cast<double>(s.part) / static_cast<double>(s.whole); };
    // Halves of tokens: positions are whole, so a little less or more than the bound makes no difference.
    return p > n * share(d.eligible_from) - 1e-6 && p < n * share(d.eligible_until) - 1e-6 &&
           slot.position >= d.eligible_first;
}

bool is_below(const Description& d, const std::vector<Slot>& slots, const Slot& slot) {
    if (!d.threshold || std::isnan(slot.importance)) return true;
    // The quantile by counting: the smallest importance that enough others do not exceed.
    double quantile = infinite;
    for (const Slot& candidate : slots) {
        const double bound = std::isnan(candidate.importance) ? -infinite : candidate.importance;
        int64_t reached = 0;
        for (const Slot& each : slots)
            if (std::isnan(each.importance) || each.importance <= bound) ++reached;
        if (static_cast<double>(reached) >= d.quantile * static_cast<double>(slots.size()))
            quantile = std::min(quantile, bound);
    }
    return slot.importance < *d.threshold * quantile;
}

// When a slot can become a victim: 1 below the threshold at an eligible position, 2 only if required, 3 never.
std::vector<int> grades(const Description& d, const std::vector<Slot>& slots, int64_t seen) {
    std::vector<int> all;
    for (const Slot& slot : slots)
        all.push_back(stays(d, slot, seen) ? 3 : is_below(d, slots, slot) && within(d, slot, seen) ? 1 : 2);
    return all;
}

// The next victim: by grade, rank, position, index; none is left at size().
size_t next(const Description& d, const std::vector<Slot>& slots, const std::vector<int>& grade, int64_t head,
            const std::set<size_t>& gone, bool forced) {
    size_t best = slots.size();
    for (size_t i = 0; i < slots.size(); ++i) {
        if (gone.contains(i)) continue;
        const int own = grade[i];
        if (own == 3 || (own == 2 && !forced)) continue;
        if (best == slots.size()) {
            best = i;
            continue;
        }
        const int other = grade[best];
        const long double mine = rank(d, slots[i], head), theirs = rank(d, slots[best], head);
        if (own < other ||
            (own == other && (mine < theirs || (mine == theirs && slots[i].position < slots[best].position))))
            best = i;
    }
    return best;
}

TEST(cache_select, a_share_of_anything_is_exact) {
    for (const auto& [part, whole] : {std::pair<int64_t, int64_t>{1, 3}, {100003, 1048576}, {1048575, 1048576}, {1, 1}})
        for (const int64_t of : {int64_t{0}, int64_t{7}, int64_t{1} << 40, int64_t{1} << 49, (int64_t{1} << 62) - 1})
            EXPECT_EQ(floor_of({part, whole}, of), static_cast<int64_t>(static_cast<__int128>(of) * part / whole));
}

TEST(cache_select, takes_the_smallest_by_another_definition) {
    Random random(11);
    int64_t victims = 0, shortfall = 0, limited = 0;
    for (int round = 0; round < 2000; ++round) {
        const int64_t seen = 1 + below(random, 120), head = below(random, 4);
        const Description d = random_description(random);
        const std::vector<Slot> slots = random_slots(random, seen);
        const Demand wanted = {below(random, 40), below(random, 40)};
        const Selection selection = select(d, slots, seen, head, wanted);
        const std::vector<int> grade = grades(d, slots, seen);
        std::set<size_t> gone;
        for (const size_t victim : selection.victims) {
            const bool forced = static_cast<int64_t>(gone.size()) < wanted.required;
            ASSERT_EQ(victim, next(d, slots, grade, head, gone, forced)) << "round " << round;
            gone.insert(victim);
        }
        const auto count = static_cast<int64_t>(gone.size());
        const int64_t until = std::max(wanted.required, wanted.allowed);
        ASSERT_LE(count, until);
        // It stops only where no candidate is left.
        if (count < until) {
            ASSERT_EQ(next(d, slots, grade, head, gone, count < wanted.required), slots.size());
        }
        ASSERT_EQ(selection.shortfall, std::max<int64_t>(wanted.required - count, 0));
        victims += count;
        shortfall += selection.shortfall;
        limited += count < until ? 1 : 0;
    }
    EXPECT_GT(victims, 10000);
    EXPECT_GT(shortfall, 500);
    EXPECT_GT(limited, 200);
}

TEST(cache_select, never_evicts_a_protected_token) {
    Random random(12);
    for (int round = 0; round < 2000; ++round) {
        const int64_t seen = 1 + below(random, 120);
        const Description d = random_description(random);
        const std::vector<Slot> slots = random_slots(random, seen);
        for (const size_t victim : select(d, slots, seen, 0, {1000, 1000}).victims)
            ASSERT_FALSE(stays(d, slots[victim], seen));
        for (const Slot& slot : slots) ASSERT_EQ(is_protected(d, slot, seen), stays(d, slot, seen));
    }
}

TEST(cache_select, does_not_depend_on_where_slots_lie) {
    Random random(13);
    for (int round = 0; round < 500; ++round) {
        const int64_t seen = 100;
        const Description d = random_description(random);
        std::vector<Slot> slots = random_slots(random, seen);
        for (size_t i = 0; i < slots.size(); ++i) slots[i].position = static_cast<int64_t>(i); // each but once
        const auto positions = [&](const Selection& selection) {
            std::vector<int64_t> all;
            for (const size_t victim : selection.victims) all.push_back(slots[victim].position);
            return all;
        };
        const Demand wanted = {below(random, 40), below(random, 40)};
        const std::vector<int64_t> before = positions(select(d, slots, seen, 1, wanted));
        EXPECT_EQ(positions(select(d, slots, seen, 1, wanted)), before);
        std::shuffle(slots.begin(), slots.end(), random);
        EXPECT_EQ(positions(select(d, slots, seen, 1, wanted)), before);
    }
}

std::vector<Slot> tokens(const std::vector<float>& importances) {
    std::vector<Slot> slots;
    for (const float importance : importances)
        slots.push_back({static_cast<int64_t>(slots.size()), importance, 100, 1, false});
    return slots;
}

using Victims = std::vector<size_t>;

TEST(cache_select, older_goes_first_where_they_tie) {
    Description d;
    d.ranking = Ranking::importance;
    std::vector<Slot> slots = tokens({1, 0, -0.0f, 0, 1});
    EXPECT_EQ(select(d, slots, 5, 0, {4, 0}).victims, (Victims{1, 2, 3, 0}));
    std::swap(slots[1].position, slots[3].position);
    EXPECT_EQ(select(d, slots, 5, 0, {3, 0}).victims, (Victims{3, 2, 1}));
    slots = tokens({2, 2});
    slots[0].position = slots[1].position = 0; // as of two sequences: the slot's number decides
    EXPECT_EQ(select(d, slots, 5, 0, {2, 0}).victims, (Victims{0, 1}));
}

TEST(cache_select, nan_is_the_least_and_infinity_the_most) {
    Description d;
    d.ranking = Ranking::importance;
    EXPECT_EQ(select(d, tokens({infinite, 0, nan_value, 1, -1}), 5, 0, {5, 0}).victims, (Victims{2, 4, 1, 3, 0}));
    d.ranking = Ranking::importance_value_distance;
    std::vector<Slot> slots = tokens({3, 2, 1});
    slots[0].value_distance = nan_value;
    slots[1].value_distance = infinite;
    EXPECT_EQ(select(d, slots, 3, 0, {3, 0}).victims, (Victims{0, 2, 1}));
}

TEST(cache_select, says_when_everything_is_protected) {
    Description d;
    d.recent = 10;
    const Selection selection = select(d, tokens({1, 2, 3}), 3, 0, {2, 3});
    EXPECT_TRUE(selection.victims.empty());
    EXPECT_EQ(selection.shortfall, 2);
}

TEST(cache_select, threshold_is_relative_to_the_quantile) {
    Description d;
    d.ranking = Ranking::importance;
    d.threshold = .5;
    d.quantile = .99;
    std::vector<float> importances(100, 10.0f); // the 99% quantile: one larger does not move it
    importances[7] = 1000;
    importances[3] = 4.9f;
    importances[4] = 5; // not below
    importances[5] = 4;
    EXPECT_EQ(select(d, tokens(importances), 100, 0, {0, 50}).victims, (Victims{5, 3}));
    EXPECT_EQ(select(d, tokens(importances), 100, 0, {3, 50}).victims, (Victims{5, 3, 4})); // the budget demands it
    d.quantile = 1;
    EXPECT_EQ(select(d, tokens(importances), 100, 0, {0, 50}).victims.size(), 50u);
    d.threshold = 0; // of an infinite quantile, too
    EXPECT_EQ(select(d, tokens({infinite, infinite, -1, 0}), 4, 0, {0, 4}).victims, (Victims{2}));
}

TEST(cache_select, threshold_of_zero_is_the_end_of_small_ones) {
    Description d;
    d.ranking = Ranking::importance;
    const std::vector<Slot> slots = tokens({3, 0, nan_value, 1, 2});
    for (const double threshold : {1e-4, 0.}) { // but for NaN, which is below everything
        d.threshold = threshold;
        EXPECT_EQ(select(d, slots, 5, 0, {0, 5}).victims, threshold > 0 ? (Victims{2, 1}) : (Victims{2}));
        EXPECT_EQ(select(d, slots, 5, 0, {3, 5}).victims, (Victims{2, 1, 3})); // the budget demands it
    }
    d.threshold.reset();
    EXPECT_EQ(select(d, slots, 5, 0, {0, 5}).victims, (Victims{2, 1, 3, 4, 0}));
}

TEST(cache_select, eligible_positions_are_exact) {
    Description d;
    d.eligible_from = {1, 4};
    d.eligible_until = {3, 4};
    const auto range = [&](int64_t seen) {
        std::vector<float> importances(static_cast<size_t>(seen), 1.0f);
        const Victims victims = select(d, tokens(importances), seen, 0, {0, seen}).victims;
        return victims.empty() ? std::pair<size_t, size_t>(0, 0) : std::pair(victims.front(), victims.back());
    };
    EXPECT_EQ(range(100), (std::pair<size_t, size_t>(25, 74)));
    EXPECT_EQ(range(101), (std::pair<size_t, size_t>(26, 75))); // 25.25 .. 75.75
    d.eligible_first = 30;
    EXPECT_EQ(range(100), (std::pair<size_t, size_t>(30, 74)));
}

TEST(cache_select, demand_counts_what_comes) {
    Description d;
    d.budget = d.target = 100;
    EXPECT_EQ(demand(d, 68, 500, 32), (Demand{0, 0}));
    EXPECT_EQ(demand(d, 90, 500, 32), (Demand{22, 22}));
    EXPECT_EQ(demand(d, 100, 500, 32), (Demand{32, 32}));
    d.target = 50; // half of it is evicted at once
    EXPECT_EQ(demand(d, 68, 500, 32), (Demand{0, 0}));
    EXPECT_EQ(demand(d, 100, 500, 32), (Demand{32, 50}));
    d.trigger = {7, 10};
    d.target = 0;
    EXPECT_EQ(demand(d, 38, 500, 32), (Demand{0, 0}));
    EXPECT_EQ(demand(d, 39, 500, 32), (Demand{0, 39}));
    d.most = 16;
    EXPECT_EQ(demand(d, 39, 500, 32), (Demand{0, 16}));
    EXPECT_EQ(demand(d, 99, 500, 32), (Demand{31, 31}));
    d.most = 0;
    d.most_share = {1, 10};
    EXPECT_EQ(demand(d, 59, 500, 32), (Demand{0, 5}));
    d.trigger = {0, 1};
    EXPECT_EQ(demand(d, 10, 500, 1), (Demand{0, 1}));
}

TEST(cache_select, demand_counts_no_more_than_the_context_has_left) {
    Description d;
    d.budget = d.target = d.context = 100;
    EXPECT_EQ(demand(d, 96, 96, 12), (Demand{0, 0}));
    EXPECT_EQ(demand(d, 100, 100, 12), (Demand{0, 0}));
    d.budget = d.target = 90;
    EXPECT_EQ(demand(d, 80, 84, 12), (Demand{2, 2}));
    EXPECT_EQ(demand(d, 80, 96, 12), (Demand{0, 0}));
    EXPECT_EQ(demand(d, 88, 96, 12), (Demand{2, 2}));
    d.target = 45; // half is evicted at once, but only once it is full
    EXPECT_EQ(demand(d, 86, 96, 12), (Demand{0, 0}));
    EXPECT_EQ(demand(d, 87, 96, 12), (Demand{1, 42}));
}

TEST(cache_select, random_ranks_are_even_and_differ_between_seeds_and_heads) {
    std::vector<int> counts(8);
    int64_t same = 0;
    for (int64_t position = 0; position < 8000; ++position) {
        const int64_t rank_here = random_rank(5, 1, position);
        ASSERT_GE(rank_here, 0);
        ASSERT_LT(rank_here, 1 << 24);
        ++counts[static_cast<size_t>(rank_here >> 21)];
        same += rank_here == random_rank(6, 1, position) || rank_here == random_rank(5, 2, position) ? 1 : 0;
    }
    for (const int count : counts) EXPECT_NEAR(count, 1000, 150); // five standard deviations
    EXPECT_LT(same, 5);
    EXPECT_EQ(random_rank(1, 2, 3), random_rank(1, 2, 3));
}

} // namespace
} // namespace winnow
