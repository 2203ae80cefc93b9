// Whom an eviction pass has to evict.
#include "cache_victims.hpp"

#include <algorithm>
#include <cmath>
#include <sstream>

namespace winnow::conformance {
namespace {

// Of a rank that is computed in single precision from an importance and a length.
constexpr double rounding = 4e-6;

struct Ranked {
    double rank, slack;
    int64_t position;
    bool makes_room, is_willing, is_doubtful; // goes by the threshold; lies at it
    friend bool operator<(const Ranked& a, const Ranked& b) {
        if (a.is_willing != b.is_willing) return a.is_willing;
        return a.rank != b.rank ? a.rank < b.rank : a.position < b.position;
    }
};

bool is_protected(const Rules& r, const Candidate& c, int64_t seen) {
    return c.is_anchor || c.position < r.sink || c.position >= seen - r.recent || seen - c.position < r.grace;
}

Ranked rank(const Rules& r, const Candidate& c, const EvictionPass& j, const double* threshold) {
    Ranked ranked{c.importance, 0, c.position, c.makes_room, true, false};
    switch (r.ranking) {
    case Ranking::age: ranked.rank = static_cast<double>(c.position); break;
    case Ranking::random: ranked.rank = static_cast<double>(drawn_rank(r.seed, j.head, c.position)); break;
    case Ranking::importance: break;
    case Ranking::per_query:
        ranked.rank = c.importance / static_cast<double>(std::max<int64_t>(j.seen - c.position, 1));
        ranked.slack = rounding * std::fabs(ranked.rank);
        break;
    case Ranking::value_distance:
    case Ranking::value_norm:
        ranked.rank = c.importance * c.value;
        ranked.slack = rounding * std::fabs(ranked.rank) + std::fabs(c.importance) * c.value_slack;
    }
    const bool is_eligible =
        c.position >= r.from.ceil_of(j.seen) && c.position < r.until.ceil_of(j.seen) && c.position >= r.first;
    if (threshold) {
        ranked.is_willing = is_eligible && c.importance < *threshold;
        ranked.is_doubtful = is_eligible && std::fabs(c.importance - *threshold) <= rounding * std::fabs(*threshold);
    } else {
        ranked.is_willing = is_eligible;
    }
    return ranked;
}

double quantile(const Rules& r, const std::vector<Candidate>& candidates) {
    std::vector<double> all;
    for (const Candidate& c : candidates) all.push_back(c.importance);
    std::sort(all.begin(), all.end());
    return all[static_cast<size_t>(std::max(std::ceil(r.quantile * static_cast<double>(all.size())), 1.0)) - 1];
}

} // namespace

std::string judge_victims(const Rules& r, const EvictionPass& j, const std::vector<Candidate>& candidates,
                          const std::set<int64_t>& victims, int64_t* shortfall) {
    *shortfall = 0;
    const int64_t held = static_cast<int64_t>(candidates.size()), coming = std::min(j.incoming, j.context - j.seen);
    int64_t required = std::max<int64_t>(held + coming - r.budget, 0), may = required;
    if ((held + coming) * r.trigger.whole > r.budget * r.trigger.part) {
        int64_t surplus = held - r.target;
        if (r.most > 0) surplus = std::min(surplus, r.most);
        may = std::max(required, std::min(surplus, r.most_share.floor_of(held)));
    }
    if (candidates.empty()) return victims.empty() ? "" : "victims of an empty head";

    const double threshold = r.threshold ? *r.threshold * quantile(r, candidates) : 0;
    std::vector<Ranked> order;
    for (const Candidate& c : candidates)
        if (!is_protected(r, c, j.seen)) order.push_back(rank(r, c, j, r.threshold ? &threshold : nullptr));
    std::sort(order.begin(), order.end());
    const int64_t willing =
        std::count_if(order.begin(), order.end(), [](const Ranked& each) { return each.is_willing; });
    const int64_t doubtful =
        std::count_if(order.begin(), order.end(), [](const Ranked& each) { return each.is_doubtful; });
    int64_t wanted = std::min(std::max(std::min(willing, may), required), static_cast<int64_t>(order.size()));
    // More go while there is no room, in the same order.
    const auto makes_room = [](const Ranked& each) { return each.makes_room; };
    while (wanted < static_cast<int64_t>(order.size()) &&
           std::count_if(order.begin(), order.begin() + wanted, makes_room) < j.room)
        ++wanted;
    *shortfall = std::max<int64_t>(required - wanted, 0);

    std::ostringstream wrong;
    if (std::llabs(static_cast<int64_t>(victims.size()) - wanted) > doubtful)
        wrong << victims.size() << " tokens went, expected " << wanted << " (" << held << " held, must " << required
              << ", may " << may << ", " << order.size() << " not protected)";
    std::set<int64_t> left = victims;
    for (const Ranked& each : order) left.erase(each.position);
    if (!left.empty()) wrong << (wrong.str().empty() ? "" : "; ") << "position " << *left.begin() << " was protected";
    if (!wrong.str().empty() || wanted == 0) return wrong.str();

    // A victim and one that is spared may have changed places where their ranks are a tie within rounding.
    const auto end = order.begin() + wanted;
    const auto is_tie_with = [](const Ranked& each) {
        return [&each](const Ranked& other) {
            return each.slack + other.slack > 0 && each.is_willing == other.is_willing &&
                   std::fabs(each.rank - other.rank) <= each.slack + other.slack;
        };
    };
    for (auto each = order.begin(); each != order.end(); ++each) {
        const bool is_wanted = each < end;
        if (victims.contains(each->position) == is_wanted || each->is_doubtful || doubtful > 0) continue;
        const bool is_tie = is_wanted ? std::any_of(end, order.end(), is_tie_with(*each))
                                      : std::any_of(order.begin(), end, is_tie_with(*each));
        if (is_tie) continue;
        const Ranked& last = *(end - 1);
        wrong << "position " << each->position << " with rank " << each->rank
              << (is_wanted ? " stayed, though the last that goes" : " went, though the last that goes")
              << " is position " << last.position << " with rank " << last.rank << "; ";
    }
    return wrong.str();
}

} // namespace winnow::conformance
