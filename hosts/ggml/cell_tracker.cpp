// Reading masks. -infinity hides a cell, whatever else stands there (ALiBi's distances) shows it.
#include "cell_tracker.hpp"

#include <algorithm>
#include <iterator>
#include <set>

namespace winnow::ggml {

namespace {

std::vector<bool> flags_of(std::span<const int32_t> cells, size_t count) {
    std::vector<bool> flags(count, false);
    for (const int32_t cell : cells) flags[static_cast<size_t>(cell)] = true;
    return flags;
}

} // namespace

std::vector<CellRange> to_ranges(std::vector<int64_t> cells) {
    std::sort(cells.begin(), cells.end());
    std::vector<CellRange> ranges;
    for (const int64_t cell : cells) {
        if (!ranges.empty() && ranges.back().end >= cell)
            ranges.back().end = cell + 1;
        else
            ranges.push_back({cell, cell + 1});
    }
    return ranges;
}

MaskSlice::MaskSlice(const ggml_tensor* mask, int64_t slice)
    : data_(static_cast<const char*>(mask->data) + static_cast<size_t>(slice % mask->ne[3]) * mask->nb[3]),
      row_bytes_(mask->nb[1]), element_bytes_(mask->nb[0]), columns_(mask->ne[0]) {}

CellTracker::CellTracker(int64_t cells, bool is_alone, int64_t sinks, bool has_window)
    : order_(static_cast<size_t>(cells), -1), is_anchored_(static_cast<size_t>(cells), false),
      group_(static_cast<size_t>(cells), -1), is_alone_(is_alone), has_window_(has_window), sinks_(sinks) {}

int64_t CellTracker::Opening::dead_cells() const {
    int64_t count = 0;
    for (const CellRange& range : dead) count += range.end - range.begin;
    return count;
}

void CellTracker::clear() {
    std::fill(order_.begin(), order_.end(), -1);
    std::fill(is_anchored_.begin(), is_anchored_.end(), false);
    std::fill(group_.begin(), group_.end(), -1);
    next_ = resident_ = 0;
}

void CellTracker::copy(const CellTracker& from) {
    const int64_t tokens_seen = tokens_seen_;
    *this = from;
    tokens_seen_ = tokens_seen;
}

void CellTracker::forget(int64_t cell) {
    if (order_[static_cast<size_t>(cell)] >= 0) --resident_;
    order_[static_cast<size_t>(cell)] = -1;
    is_anchored_[static_cast<size_t>(cell)] = false;
    group_[static_cast<size_t>(cell)] = -1;
}

void CellTracker::append(std::span<const int32_t> cells) {
    for (const int32_t cell : cells) {
        if (order_[static_cast<size_t>(cell)] < 0) ++resident_;
        group_[static_cast<size_t>(cell)] = -1;
        order_[static_cast<size_t>(cell)] = next_++;
    }
    tokens_seen_ += static_cast<int64_t>(cells.size());
}

int64_t CellTracker::count_before(int64_t cell) const {
    const auto at = static_cast<size_t>(cell);
    return order_[at] - std::max<int64_t>(group_[at], 0);
}

bool CellTracker::sees_ahead(std::span<const int32_t> cells, const MaskSlice& mask) {
    const auto count = static_cast<int64_t>(cells.size());
    for (int64_t token = 0; token < count; ++token) {
        for (int64_t later = token + 1; later < count; ++later) {
            if (mask.sees(token, cells[static_cast<size_t>(later)])) return true;
        }
    }
    return false;
}

// In a stream of one sequence: cells that neither the first nor the last token sees, unless they may only have left a
// window, in front of all that is seen. Where nothing is seen, the sequence begins anew.
void CellTracker::find_unseen(std::span<const int32_t> cells, const MaskSlice& mask, std::vector<int64_t>& dead) const {
    const int64_t last = static_cast<int64_t>(cells.size()) - 1;
    const std::vector<bool> is_coming = flags_of(cells, order_.size());
    std::vector<int64_t> unseen;
    int64_t oldest = next_;
    for (int64_t cell = 0; cell < std::min(mask.columns(), static_cast<int64_t>(order_.size())); ++cell) {
        const int64_t order = order_[static_cast<size_t>(cell)];
        if (order < 0 || is_coming[static_cast<size_t>(cell)]) continue;
        if (mask.sees(0, cell) || mask.sees(last, cell))
            oldest = std::min(oldest, order);
        else
            unseen.push_back(cell);
    }
    const bool is_new = oldest == next_;
    std::copy_if(unseen.begin(), unseen.end(), std::back_inserter(dead),
                 [&](int64_t cell) { return is_new || order_[static_cast<size_t>(cell)] > oldest; });
}

// Where a group's first token is overwritten, all of the group that no token of the batch sees (without a mask nobody
// sees any): without a window llama.cpp uses only empty cells, and nobody keeps a sequence without its beginning.
void CellTracker::find_orphans(std::span<const int32_t> cells, const MaskSlice* mask,
                               std::vector<int64_t>& dead) const {
    const std::vector<bool> is_coming = flags_of(cells, order_.size());
    std::vector<int64_t> groups;
    for (const int32_t cell : cells) {
        const int64_t group = group_[static_cast<size_t>(cell)];
        if (group >= 0 && group == order_[static_cast<size_t>(cell)]) groups.push_back(group);
    }
    if (groups.empty()) return;
    for (size_t cell = 0; cell < order_.size(); ++cell) {
        if (is_coming[cell] || std::find(groups.begin(), groups.end(), group_[cell]) == groups.end()) continue;
        bool is_seen = false;
        for (size_t row = 0; mask && row < cells.size() && !is_seen; ++row)
            is_seen = mask->sees(static_cast<int64_t>(row), static_cast<int64_t>(cell));
        if (!is_seen) dead.push_back(static_cast<int64_t>(cell));
    }
}

// A token is of the group of whom it sees; who sees nobody else begins one.
void CellTracker::append_in_groups(std::span<const int32_t> cells, const MaskSlice& mask) {
    const std::vector<bool> is_coming = flags_of(cells, order_.size());
    const auto columns = std::min(static_cast<size_t>(mask.columns()), order_.size());
    std::vector<int64_t> groups;
    for (size_t token = 0; token < cells.size(); ++token) {
        const auto sees = [&](int64_t cell) { return mask.sees(static_cast<int64_t>(token), cell); };
        const auto mate = std::find_if(cells.begin(), cells.begin() + static_cast<ptrdiff_t>(token), sees);
        if (mate != cells.begin() + static_cast<ptrdiff_t>(token)) {
            groups.push_back(groups[static_cast<size_t>(mate - cells.begin())]);
            continue;
        }
        size_t cell = 0;
        while (cell < columns && (is_coming[cell] || order_[cell] < 0 || !sees(static_cast<int64_t>(cell)))) ++cell;
        groups.push_back(cell < columns ? group_[cell] : next_ + static_cast<int64_t>(token));
    }
    append(cells);
    for (size_t token = 0; token < cells.size(); ++token) group_[static_cast<size_t>(cells[token])] = groups[token];
}

// A token of the batch that sees only newer ones of its group: with a window the older ones are behind it. Otherwise
// llama.cpp removes the end of a sequence, or all; a context shift that keeps no first token is taken for a window, so
// that removed tokens stay until their cells are used again.
bool CellTracker::shows_window(std::span<const int32_t> cells, const MaskSlice& mask) const {
    std::vector<int64_t> groups;
    for (size_t token = cells.size(); token-- > 0;) {
        const int64_t group = group_[static_cast<size_t>(cells[token])];
        if (group < 0 || std::find(groups.begin(), groups.end(), group) != groups.end()) continue;
        groups.push_back(group); // its newest token is enough
        int64_t oldest_seen = next_, oldest = next_;
        for (int64_t cell = 0; cell < std::min(mask.columns(), static_cast<int64_t>(order_.size())); ++cell) {
            if (group_[static_cast<size_t>(cell)] != group) continue;
            oldest = std::min(oldest, order_[static_cast<size_t>(cell)]);
            if (mask.sees(static_cast<int64_t>(token), cell))
                oldest_seen = std::min(oldest_seen, order_[static_cast<size_t>(cell)]);
        }
        if (oldest < oldest_seen) return true;
    }
    return false;
}

std::vector<int64_t> CellTracker::find_first_tokens(std::span<const int32_t> cells, const MaskSlice& mask) const {
    std::vector<int64_t> found;
    for (size_t token = 0; token < cells.size(); ++token) {
        if (next_ + static_cast<int64_t>(token) < sinks_) continue; // a sink of the stream itself
        int64_t seen = 0;
        for (int64_t cell = 0; cell < mask.columns() && seen <= sinks_; ++cell)
            seen += mask.sees(static_cast<int64_t>(token), cell);
        if (seen <= sinks_) found.push_back(cells[token]);
    }
    return found;
}

int64_t CellTracker::count_taken_back(const std::vector<int64_t>& dead, const MaskSlice& mask) const {
    if (is_alone_ || dead.empty()) return static_cast<int64_t>(dead.size());
    int64_t seen = 0;
    const int64_t columns = std::min(mask.columns(), static_cast<int64_t>(order_.size()));
    while (seen < columns && (order_[static_cast<size_t>(seen)] < 0 || !mask.sees(0, seen))) ++seen;
    if (seen == columns || group_[static_cast<size_t>(seen)] < 0) return 0;
    return std::count_if(dead.begin(), dead.end(), [&](int64_t cell) {
        return group_[static_cast<size_t>(cell)] == group_[static_cast<size_t>(seen)];
    });
}

void CellTracker::note_shift(std::span<const int32_t> cells) {
    std::set<int64_t> groups;
    for (const int32_t cell : cells) groups.insert(group_[static_cast<size_t>(cell)]);
    for (int64_t& group : group_)
        if (groups.contains(group)) group = -1;
}

void CellTracker::remove(const CellRange& range) {
    for (int64_t cell = range.begin; cell < range.end; ++cell) forget(cell);
    if (resident_ == 0) clear();
}

CellTracker::Opening CellTracker::drop(std::span<const int32_t> cells, std::vector<int64_t> dead) {
    for (const int32_t cell : cells)
        if (is_anchored_[static_cast<size_t>(cell)]) dead.push_back(cell); // whose next token is no first one
    for (const int64_t cell : dead) forget(cell);
    const int64_t overwritten =
        std::count_if(cells.begin(), cells.end(), [&](int32_t cell) { return order_[static_cast<size_t>(cell)] >= 0; });
    Opening opening;
    if (resident_ == overwritten && next_ > 0) {
        clear();
        opening.dead.push_back({0, static_cast<int64_t>(order_.size())});
    } else {
        opening.dead = to_ranges(std::move(dead));
    }
    return opening;
}

CellTracker::Opening CellTracker::restore(std::span<const int32_t> cells) {
    std::vector<int64_t> dead;
    if (is_alone_) { // what the stream held is replaced
        for (size_t cell = 0; cell < order_.size(); ++cell)
            if (order_[cell] >= 0) dead.push_back(static_cast<int64_t>(cell));
    } else if (!has_window_) {
        find_orphans(cells, nullptr, dead);
    }
    Opening opening = drop(cells, std::move(dead));
    const int64_t first = next_;
    append(cells);
    tokens_seen_ -= static_cast<int64_t>(cells.size());
    // llama.cpp writes a state by cells, which may have been used again: which of its tokens came first is not known.
    // So none of them is taken for younger than another, or for the one from which the others descend.
    for (const int32_t cell : cells) order_[static_cast<size_t>(cell)] = first;
    if (is_alone_ || first == 0) return opening; // a state of all that was there may have several sequences
    for (size_t token = 0; token < cells.size(); ++token) {
        if (static_cast<int64_t>(token) >= sinks_ || first + static_cast<int64_t>(token) < sinks_) continue;
        opening.anchors.push_back(cells[token]);
        is_anchored_[static_cast<size_t>(cells[token])] = true;
    }
    return opening;
}

CellTracker::Opening CellTracker::open(std::span<const int32_t> cells, const MaskSlice& mask) {
    std::vector<int64_t> dead;
    // The columns reach over all cells that are in use.
    for (int64_t cell = mask.columns(); cell < static_cast<int64_t>(order_.size()); ++cell)
        if (order_[static_cast<size_t>(cell)] >= 0) dead.push_back(cell);
    if (is_alone_)
        find_unseen(cells, mask, dead);
    else if (!has_window_)
        find_orphans(cells, &mask, dead);
    const int64_t taken_back = count_taken_back(dead, mask);
    Opening opening = drop(cells, std::move(dead));
    opening.taken_back = taken_back;
    if (is_alone_) {
        append(cells);
        return opening;
    }
    opening.anchors = find_first_tokens(cells, mask);
    append_in_groups(cells, mask);
    has_window_ = has_window_ || shows_window(cells, mask);
    for (const int64_t cell : opening.anchors) is_anchored_[static_cast<size_t>(cell)] = true;
    return opening;
}

} // namespace winnow::ggml
