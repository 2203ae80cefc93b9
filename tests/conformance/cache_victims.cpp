// Which tokens an eviction pass has to evict.
#include "cache_victims.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace winnow::conformance {
namespace {

// The error of a rank that is computed in single precision from an importance and a length.
constexpr double rounding = 4e-6;

struct Ranked {
    double rank, slack;
    int64_t position;
    bool frees_slot, is_preferred, is_doubtful; // is_doubtful: its importance lies at the threshold
    friend bool operator<(const Ranked& a, const Ranked& b) {
        if (a.is_preferred != b.is_preferred) return a.is_preferred;
        return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
    }
};

bool is_protected(const Rules& r, const Candidate& c, int64_t seen) {
    return c.is_anchor || c.position < r.sink || c.position >= seen - r.recent || seen - c.position < r.grace;
}

Ranked rank(const Rules& r, const Candidate& c, const EvictionPass& pass, const double* threshold) {
    Ranked ranked{c.importance, 0, c.position, c.frees_slot, true, false};
    switch (r.ranking) {
    case Ranking::age: ranked.rank = static_cast<double>(c.position); break;
    case Ranking::random: ranked.rank = static_cast<double>(drawn_rank(r.seed, pass.head, c.position)); break;
    case Ranking::importance: break;
    case Ranking::prediction: {
        const Prediction prediction = prediction_of(&r.network[static_cast<size_t>(pass.head * network_numbers)],
                                                    c.importance, pass.seen - c.position);
        ranked.rank = prediction.value;
        ranked.slack = rounding * prediction.size;
        break;
    }
    case Ranking::value_distance:
        ranked.rank = c.importance * c.value;
        ranked.slack = rounding * std::fabs(ranked.rank) + std::fabs(c.importance) * c.value_slack;
    }
    const bool is_eligible =
        c.position >= r.from.ceil_of(pass.seen) && c.position < r.until.ceil_of(pass.seen) && c.position >= r.first;
    if (threshold) {
        ranked.is_preferred = is_eligible && c.importance < *threshold;
        ranked.is_doubtful = is_eligible && std::fabs(c.importance - *threshold) <= rounding * std::fabs(*threshold);
    } else {
        ranked.is_preferred = is_eligible;
    }
    return ranked;
}

double quantile(const Rules& r, const std::vector<Candidate>& candidates) {
    std::vector<double> all;
    all.reserve(candidates.size());
    for (const Candidate& c : candidates) all.push_back(c.importance);
    std::sort(all.begin(), all.end());
    return all[static_cast<size_t>(std::max(std::ceil(r.quantile * static_cast<double>(all.size())), 1.0)) - 1];
}

} // namespace

std::string check_victims(const Rules& r, const EvictionPass& pass, const std::vector<Candidate>& candidates,
                          const std::set<int64_t>& victims, int64_t* shortfall) {
    *shortfall = 0;
    const int64_t resident = static_cast<int64_t>(candidates.size()),
                  coming = std::min(pass.incoming, pass.context - pass.seen);
    int64_t required = std::max<int64_t>(resident + coming - r.budget, 0), allowed = required;
    if ((resident + coming) * r.trigger.whole > r.budget * r.trigger.part) {
        int64_t surplus = resident - r.target;
        if (r.most > 0) surplus = std::min(surplus, r.most);
        allowed = std::max(required, std::min(surplus, r.most_share.floor_of(resident)));
    }
    if (candidates.empty()) return victims.empty() ? "" : "victims of an empty head";

    const double threshold = r.threshold ? *r.threshold * quantile(r, candidates) : 0;
    std::vector<Ranked> order;
    for (const Candidate& c : candidates)
        if (!is_protected(r, c, pass.seen)) order.push_back(rank(r, c, pass, r.threshold ? &threshold : nullptr));
    std::sort(order.begin(), order.end());
    const int64_t preferred =
        std::count_if(order.begin(), order.end(), [](const Ranked& each) { return each.is_preferred; });
    const int64_t doubtful =
        std::count_if(order.begin(), order.end(), [](const Ranked& each) { return each.is_doubtful; });
    int64_t wanted = std::min(std::max(std::min(preferred, allowed), required), static_cast<int64_t>(order.size()));
    // More are evicted while slots are lacking, in the same order.
    const auto frees_slot = [](const Ranked& each) { return each.frees_slot; };
    while (wanted < static_cast<int64_t>(order.size()) &&
           std::count_if(order.begin(), order.begin() + wanted, frees_slot) < pass.needed_slots)
        ++wanted;
    *shortfall = std::max<int64_t>(required - wanted, 0);

    std::ostringstream wrong;
    if (std::llabs(static_cast<int64_t>(victims.size()) - wanted) > doubtful)
        wrong << victims.size() << " tokens were evicted, expected " << wanted << " (" << resident
              << " resident, required " << required << ", allowed " << allowed << ", " << order.size()
              << " not protected)";
    std::set<int64_t> left = victims;
    for (const Ranked& each : order) left.erase(each.position);
    if (!left.empty()) wrong << (wrong.str().empty() ? "" : "; ") << "position " << *left.begin() << " was protected";
    if (!wrong.str().empty()) return wrong.str();

    // Doubtful tokens may be evicted or not; of the others those are that come first. A victim and one that is spared
    // may have changed places where their ranks are a tie within rounding.
    order.erase(std::remove_if(order.begin(), order.end(), [](const Ranked& each) { return each.is_doubtful; }),
                order.end());
    const auto is_victim = [&](const Ranked& each) { return victims.contains(each.position); };
    const auto end = order.begin() + std::count_if(order.begin(), order.end(), is_victim);
    const auto is_tie_with = [](const Ranked& each) {
        return [&each](const Ranked& other) {
            return each.slack + other.slack > 0 && each.is_preferred == other.is_preferred &&
                   std::fabs(each.rank - other.rank) <= each.slack + other.slack;
        };
    };
    for (auto each = order.begin(); each != order.end(); ++each) {
        const bool is_wanted = each < end;
        if (is_victim(*each) == is_wanted) continue;
        const bool is_tie = is_wanted ? std::any_of(end, order.end(), is_tie_with(*each))
                                      : std::any_of(order.begin(), end, is_tie_with(*each));
        if (is_tie) continue;
        const Ranked& last = *(end - 1);
        wrong << "position " << each->position << " with rank " << each->rank
              << (is_wanted ? " was kept, though the last victim" : " was evicted, though the last victim")
              << " is position " << last.position << " with rank " << last.rank << "; ";
    }
    return wrong.str();
}

std::string check_moved(const Rules& r, const EvictionPass& pass, const std::vector<Candidate>& candidates,
                        const std::set<int64_t>& moved, int64_t count, bool by_age) {
    std::ostringstream wrong;
    if (static_cast<int64_t>(moved.size()) != count) {
        wrong << moved.size() << " tokens went down, expected " << count << " of " << candidates.size();
        return wrong.str();
    }
    std::vector<Ranked> order;
    for (const Candidate& c : candidates) {
        Ranked each = rank(r, c, pass, nullptr);
        if (by_age) each.rank = each.slack = 0;
        each.is_preferred = !is_protected(r, c, pass.seen);
        order.push_back(each);
    }
    std::sort(order.begin(), order.end());
    const auto end = order.begin() + count;
    for (auto each = order.begin(); each != order.end(); ++each) {
        const bool is_wanted = each < end;
        if (moved.contains(each->position) == is_wanted) continue;
        const auto is_tie = [&](const Ranked& other) {
            return each->slack + other.slack > 0 && each->is_preferred == other.is_preferred &&
                   std::fabs(each->rank - other.rank) <= each->slack + other.slack;
        };
        if (is_wanted ? std::any_of(end, order.end(), is_tie) : std::any_of(order.begin(), end, is_tie)) continue;
        wrong << "position " << each->position << " with rank " << each->rank
              << (is_wanted ? " stayed in its segment" : " went down")
              << ", though the last that goes down is position " << (count > 0 ? (end - 1)->position : -1)
              << " with rank " << (count > 0 ? (end - 1)->rank : 0) << "; ";
    }
    return wrong.str();
}

} // namespace winnow::conformance
