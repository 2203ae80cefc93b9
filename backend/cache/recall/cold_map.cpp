// Runs of slots, added, cut and joined.
#include "cache/recall/cold_map.hpp"

#include <algorithm>

namespace winnow::cache {

void ColdMap::add(Runs& runs, const Run& run) {
    if (run.count == 0) return;
    if (!runs.empty() && runs.back().slot + runs.back().count == run.slot &&
        static_cast<int64_t>(runs.back().entry) + runs.back().count == run.entry)
        runs.back().count += run.count;
    else
        runs.push_back(run);
}

void ColdMap::fill(const Runs& runs, int64_t first, std::span<int32_t> entries) {
    std::fill(entries.begin(), entries.end(), free_slot);
    const int64_t end = first + static_cast<int64_t>(entries.size());
    for (const Run& run : runs)
        for (int64_t slot = std::max<int64_t>(run.slot, first); slot < std::min<int64_t>(run.slot + run.count, end);
             ++slot)
            entries[static_cast<size_t>(slot - first)] = run.entry + static_cast<int32_t>(slot - run.slot);
}

void ColdMap::join_heads() {
    const bool agree = std::all_of(heads_.begin(), heads_.end(), [&](const Runs& runs) { return runs == heads_[0]; });
    if (agree) heads_.resize(1);
}

void ColdMap::set(std::span<const int32_t> entries, int64_t heads, int64_t first) {
    heads_.resize(static_cast<size_t>(heads), heads_[0]); // those that agreed
    const size_t slots = entries.size() / static_cast<size_t>(heads);
    for (size_t head = 0; head < heads_.size(); ++head) {
        Runs& runs = heads_[head];
        std::erase_if(runs, [&](const Run& run) { return run.slot >= first; });
        if (!runs.empty())
            runs.back().count = std::min<int32_t>(runs.back().count, static_cast<int32_t>(first) - runs.back().slot);
        for (size_t i = 0; i < slots; ++i)
            if (const int32_t entry = entries[head * slots + i]; entry >= 0)
                add(runs, {static_cast<int32_t>(first) + static_cast<int32_t>(i), 1, entry});
    }
    join_heads();
}

std::vector<int32_t> ColdMap::entries(int64_t slots) const { return entries(maps(), slots); }

std::vector<int32_t> ColdMap::entries(int64_t heads, int64_t slots, int64_t first) const {
    std::vector<int32_t> all(static_cast<size_t>(heads * slots));
    for (size_t head = 0; head < static_cast<size_t>(heads); ++head)
        fill(heads_[heads_.size() == 1 ? 0 : head], first,
             std::span(all).subspan(head * static_cast<size_t>(slots), static_cast<size_t>(slots)));
    return all;
}

int64_t ColdMap::end() const {
    int64_t end = 0;
    for (const Runs& runs : heads_)
        if (!runs.empty()) end = std::max<int64_t>(end, runs.back().slot + runs.back().count);
    return end;
}

int64_t ColdMap::in_front() const {
    for (const Runs& runs : heads_) {
        int64_t count = 0;
        for (const Run& run : runs) count += run.count;
        if (count != end()) return -1;
    }
    return end();
}

void ColdMap::edit(SlotEdit::Action action, int64_t begin, int64_t end, int64_t delta) {
    for (Runs& runs : heads_) {
        Runs edited;
        for (const Run& run : runs) {
            const int64_t first = run.entry & ~anchor_flag;
            const auto before = static_cast<int32_t>(std::clamp<int64_t>(begin - first, 0, run.count));
            const auto until = static_cast<int32_t>(std::clamp<int64_t>(end - first, before, run.count));
            add(edited, {run.slot, before, run.entry});
            Run meant{run.slot + before, until - before, run.entry + before};
            if (action == SlotEdit::Action::shift) meant.entry += static_cast<int32_t>(delta);
            if (action == SlotEdit::Action::anchor) meant.entry |= anchor_flag;
            if (action != SlotEdit::Action::free) add(edited, meant);
            add(edited, {run.slot + until, run.count - until, run.entry + until});
        }
        runs = std::move(edited);
    }
    join_heads();
}

} // namespace winnow::cache
