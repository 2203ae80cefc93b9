// The definition of an eviction pass.
#include "device/select.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace winnow {
namespace {

constexpr double least = -std::numeric_limits<double>::infinity();

double importance_of(const Slot& slot) { return std::isnan(slot.importance) ? least : slot.importance; }

double rank_of(const Description& description, const Slot& slot, int64_t head) {
    const double importance = importance_of(slot);
    double rank = importance;
    switch (description.ranking) {
    case Ranking::age: return static_cast<double>(slot.position);
    case Ranking::random: return static_cast<double>(random_rank(description.seed, head, slot.position));
    case Ranking::importance: return importance;
    case Ranking::prediction: rank = slot.prediction; break;
    case Ranking::importance_value_distance: rank = importance * slot.value_distance; break;
    }
    return std::isnan(rank) ? least : rank;
}

bool is_eligible(const Description& description, const Slot& slot, int64_t seen) {
    return slot.position >= ceil_of(description.eligible_from, seen) &&
           slot.position < ceil_of(description.eligible_until, seen) && slot.position >= description.eligible_first;
}

// The smallest importance that at least `quantile` of the head's tokens do not exceed.
double quantile_of(const Description& description, std::span<const Slot> slots) {
    std::vector<double> importances;
    for (const Slot& slot : slots) importances.push_back(importance_of(slot));
    if (importances.empty()) return least;
    std::sort(importances.begin(), importances.end());
    const double rank = std::ceil(description.quantile * static_cast<double>(importances.size()));
    return importances[static_cast<size_t>(std::max(rank, 1.0)) - 1];
}

struct Candidate {
    double rank;
    int64_t position;
    size_t index;
    friend bool operator<(const Candidate& a, const Candidate& b) {
        return std::tie(a.rank, a.position, a.index) < std::tie(b.rank, b.position, b.index);
    }
};

// Moves the smallest to the victims until there are `most` of them.
void take(std::vector<Candidate>& candidates, int64_t most, std::vector<size_t>& victims) {
    std::sort(candidates.begin(), candidates.end());
    for (const Candidate& candidate : candidates) {
        if (static_cast<int64_t>(victims.size()) >= most) return;
        victims.push_back(candidate.index);
    }
}

} // namespace

Demand demand(const Description& description, int64_t occupied, int64_t seen, int64_t incoming) {
    const int64_t coming = std::min(incoming, description.context - seen);
    Demand wanted;
    wanted.required = std::max<int64_t>(occupied + coming - description.budget, 0);
    const Share& trigger = description.trigger;
    if ((occupied + coming) * trigger.whole <= description.budget * trigger.part) {
        wanted.allowed = wanted.required;
        return wanted;
    }
    int64_t surplus = occupied - description.target;
    if (description.most > 0) surplus = std::min(surplus, description.most);
    surplus = std::min(surplus, floor_of(description.most_share, occupied));
    wanted.allowed = std::max(wanted.required, surplus);
    return wanted;
}

bool is_protected(const Description& description, const Slot& slot, int64_t seen) {
    return slot.anchor || slot.position < description.sink || slot.position >= seen - description.recent ||
           slot.queries_seen < description.grace;
}

Selection select(const Description& description, std::span<const Slot> slots, int64_t seen, int64_t head,
                 const Demand& wanted) {
    const double share = description.threshold.value_or(0); // of 0 also where the quantile is infinite
    const double threshold = share != 0 ? share * quantile_of(description, slots) : 0;
    std::vector<Candidate> preferred, others;
    for (size_t i = 0; i < slots.size(); ++i) {
        const Slot& slot = slots[i];
        if (is_protected(description, slot, seen)) continue;
        const bool below = !description.threshold || importance_of(slot) < threshold || importance_of(slot) == least;
        std::vector<Candidate>& group = below && is_eligible(description, slot, seen) ? preferred : others;
        group.push_back({rank_of(description, slot, head), slot.position, i});
    }
    Selection selection;
    take(preferred, std::max(wanted.required, wanted.allowed), selection.victims);
    take(others, wanted.required, selection.victims);
    selection.shortfall = std::max<int64_t>(wanted.required - static_cast<int64_t>(selection.victims.size()), 0);
    return selection;
}

std::vector<size_t> select_to_move(const Description& description, std::span<const Slot> slots, int64_t seen,
                                   int64_t head, int64_t count, bool by_age) {
    std::vector<Candidate> others, kept;
    for (size_t i = 0; i < slots.size(); ++i) {
        const double rank = by_age ? 0 : rank_of(description, slots[i], head);
        (is_protected(description, slots[i], seen) ? kept : others).push_back({rank, slots[i].position, i});
    }
    std::vector<size_t> moved;
    take(others, count, moved);
    take(kept, count, moved);
    return moved;
}

} // namespace winnow
