// Reading masks. -infinity hides a cell, whatever else stands there (ALiBi's distances) shows it.
#include "cell_tracker.hpp"

#include <algorithm>
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
    : cells_(static_cast<size_t>(cells)), is_alone_(is_alone), is_of_window_(has_window), has_window_(has_window),
      sinks_(sinks) {}

int64_t CellTracker::Opening::dead_cells() const {
    int64_t count = 0;
    for (const CellRange& range : dead) count += range.end - range.begin;
    return count;
}

int64_t CellTracker::columns_of(const MaskSlice& mask) const {
    return std::min(mask.columns(), static_cast<int64_t>(cells_.size()));
}

void CellTracker::clear() {
    std::fill(cells_.begin(), cells_.end(), Cell{});
    next_ = newest_group_ = resident_ = 0;
}

void CellTracker::copy(const CellTracker& from) {
    const int64_t tokens_seen = tokens_seen_;
    *this = from;
    tokens_seen_ = tokens_seen;
}

void CellTracker::forget(int64_t cell) {
    if (at(cell).order >= 0) --resident_;
    at(cell) = {};
}

void CellTracker::append(std::span<const int32_t> cells) {
    for (const int32_t cell : cells) {
        if (at(cell).order < 0) ++resident_;
        at(cell) = {next_++, -1, at(cell).is_anchored, false};
    }
    tokens_seen_ += static_cast<int64_t>(cells.size());
}

int64_t CellTracker::count_before(int64_t cell) const { return at(cell).order - std::max<int64_t>(at(cell).group, 0); }

bool CellTracker::sees_ahead(std::span<const int32_t> cells, const MaskSlice& mask) {
    const auto count = static_cast<int64_t>(cells.size());
    for (int64_t token = 0; token < count; ++token) {
        for (int64_t later = token + 1; later < count; ++later) {
            if (mask.sees(token, cells[static_cast<size_t>(later)])) return true;
        }
    }
    return false;
}

// The first cell, of those that a batch does not overwrite, whose token a token of the batch sees; -1: none.
int64_t CellTracker::find_seen(int64_t token, const MaskSlice& mask, const std::vector<bool>& is_coming) const {
    for (int64_t cell = 0; cell < columns_of(mask); ++cell)
        if (at(cell).order >= 0 && !is_coming[static_cast<size_t>(cell)] && mask.sees(token, cell)) return cell;
    return -1;
}

// Where a group's first token is overwritten, the rest of the group. Without a window llama.cpp uses only empty cells,
// and few programs keep a sequence without its beginning.
std::vector<int64_t> CellTracker::find_orphans(std::span<const int32_t> cells) const {
    const std::vector<bool> is_coming = flags_of(cells, cells_.size());
    std::vector<int64_t> groups, found;
    for (const int32_t cell : cells)
        if (at(cell).group >= 0 && at(cell).group == at(cell).order) groups.push_back(at(cell).group);
    for (size_t cell = 0; cell < cells_.size() && !groups.empty(); ++cell) {
        const bool is_orphan = std::find(groups.begin(), groups.end(), cells_[cell].group) != groups.end();
        if (is_orphan && !is_coming[cell]) found.push_back(static_cast<int64_t>(cell));
    }
    return found;
}

// A token is of the group of whom it sees; who sees nobody else begins one.
void CellTracker::append_in_groups(std::span<const int32_t> cells, const MaskSlice& mask) {
    const std::vector<bool> is_coming = flags_of(cells, cells_.size());
    std::vector<int64_t> groups(is_alone_ ? cells.size() : 0, newest_group_);
    for (size_t token = groups.size(); token < cells.size(); ++token) {
        const auto sees = [&](int64_t cell) { return mask.sees(static_cast<int64_t>(token), cell); };
        const auto end = cells.begin() + static_cast<ptrdiff_t>(token);
        const auto mate = std::find_if(cells.begin(), end, sees);
        const int64_t seen = mate == end ? find_seen(static_cast<int64_t>(token), mask, is_coming) : -1;
        if (mate != end)
            groups.push_back(groups[static_cast<size_t>(mate - cells.begin())]);
        else
            groups.push_back(seen >= 0 ? at(seen).group : next_ + static_cast<int64_t>(token));
    }
    append(cells);
    for (size_t token = 0; token < cells.size(); ++token) at(cells[token]).group = groups[token];
}

// A token of the batch that sees only newer ones of its group: with a window the older ones are behind it. A context
// shift that keeps no first token is taken for one, too.
bool CellTracker::shows_window(std::span<const int32_t> cells, const MaskSlice& mask) const {
    std::vector<int64_t> groups;
    for (size_t token = cells.size(); token-- > 0;) {
        const int64_t group = at(cells[token]).group;
        if (group < 0 || std::find(groups.begin(), groups.end(), group) != groups.end()) continue;
        groups.push_back(group); // its newest token is enough
        int64_t oldest_seen = next_, oldest = next_;
        for (int64_t cell = 0; cell < columns_of(mask); ++cell) {
            if (at(cell).group != group) continue;
            oldest = std::min(oldest, at(cell).order);
            if (mask.sees(static_cast<int64_t>(token), cell)) oldest_seen = std::min(oldest_seen, at(cell).order);
        }
        if (oldest < oldest_seen) return true;
    }
    return false;
}

std::vector<int64_t> CellTracker::find_first_tokens(std::span<const int32_t> cells, const MaskSlice& mask) const {
    std::vector<int64_t> found;
    if (is_of_window_) return found; // its first tokens leave it; and who sees few others may begin a chunk
    for (size_t token = 0; token < cells.size(); ++token) {
        if (next_ + static_cast<int64_t>(token) < sinks_) continue; // a sink of the stream itself
        int64_t seen = 0;
        for (int64_t cell = 0; cell < mask.columns() && seen <= sinks_; ++cell)
            seen += mask.sees(static_cast<int64_t>(token), cell);
        if (seen <= sinks_) found.push_back(cells[token]);
    }
    return found;
}

// The first token sees some of its group, and not these younger ones.
int64_t CellTracker::note_taken_back(std::span<const int32_t> cells, const MaskSlice& mask) {
    const std::vector<bool> is_coming = flags_of(cells, cells_.size());
    const int64_t seen = find_seen(0, mask, is_coming);
    if (seen < 0 || at(seen).group < 0) return 0;
    int64_t count = 0;
    for (int64_t cell = 0; cell < static_cast<int64_t>(cells_.size()); ++cell) {
        const bool is_younger = at(cell).group == at(seen).group && at(cell).order > at(seen).order;
        if (!is_younger || at(cell).is_taken_back || is_coming[static_cast<size_t>(cell)] || mask.sees(0, cell))
            continue;
        at(cell).is_taken_back = true;
        ++count;
    }
    return count;
}

void CellTracker::note_shift(std::span<const int32_t> cells) {
    if (is_alone_) return;
    std::set<int64_t> groups;
    for (const int32_t cell : cells) groups.insert(at(cell).group);
    for (Cell& cell : cells_)
        if (groups.contains(cell.group)) cell.group = -1;
}

void CellTracker::remove(const CellRange& range) {
    for (int64_t cell = range.begin; cell < range.end; ++cell) forget(cell);
    if (resident_ == 0) clear();
}

CellTracker::Opening CellTracker::drop(std::span<const int32_t> cells, std::vector<int64_t> dead) {
    for (const int32_t cell : cells)
        if (at(cell).is_anchored) dead.push_back(cell); // whose next token is no first one
    for (const int64_t cell : dead) forget(cell);
    const int64_t overwritten =
        std::count_if(cells.begin(), cells.end(), [&](int32_t cell) { return at(cell).order >= 0; });
    Opening opening;
    if (resident_ == overwritten && next_ > 0) {
        clear();
        opening.dead.push_back({0, static_cast<int64_t>(cells_.size())});
    } else {
        opening.dead = to_ranges(std::move(dead));
    }
    return opening;
}

CellTracker::Opening CellTracker::restore(std::span<const int32_t> cells, bool replaces) {
    std::vector<int64_t> dead, guessed;
    if (is_alone_) {
        if (replaces) dead = cells_behind(0);
    } else if (!has_window_) {
        dead = guessed = find_orphans(cells);
    }
    Opening opening = drop(cells, std::move(dead));
    opening.guessed = std::move(guessed);
    const int64_t first = next_;
    append(cells);
    tokens_seen_ -= static_cast<int64_t>(cells.size());
    // llama.cpp writes a state by cells, which may have been used again: which of its tokens came first is not known.
    // So none of them is taken for younger than another, or for the one from which the others descend.
    for (const int32_t cell : cells) at(cell).order = first;
    // A state of all that was there may have several sequences.
    if (is_alone_ || is_of_window_ || first == 0) return opening;
    for (size_t token = 0; token < cells.size(); ++token) {
        if (static_cast<int64_t>(token) >= sinks_ || first + static_cast<int64_t>(token) < sinks_) continue;
        opening.anchors.push_back(cells[token]);
        at(cells[token]).is_anchored = true;
    }
    return opening;
}

std::vector<int64_t> CellTracker::cells_behind(int64_t columns) const {
    std::vector<int64_t> found;
    for (int64_t cell = columns; cell < static_cast<int64_t>(cells_.size()); ++cell)
        if (at(cell).order >= 0) found.push_back(cell);
    return found;
}

CellTracker::Opening CellTracker::open(std::span<const int32_t> cells, int64_t columns) {
    Opening opening = drop(cells, cells_behind(columns));
    append(cells);
    return opening;
}

CellTracker::Opening CellTracker::open(std::span<const int32_t> cells, const MaskSlice& mask) {
    std::vector<int64_t> dead = cells_behind(mask.columns());
    const int64_t taken_back = note_taken_back(cells, mask);
    // A batch in cells that were not in use may begin a chunk; so may one that goes on around the ring of a window.
    const int64_t front = cells.front(), behind = (front > 0 ? front : static_cast<int64_t>(cells_.size())) - 1;
    const bool goes_on = is_of_window_ && at(behind).order == next_ - 1;
    const bool begins_anew = at(front).order >= 0 && !goes_on && find_seen(0, mask, flags_of(cells, cells_.size())) < 0;
    Opening opening = drop(cells, std::move(dead));
    opening.taken_back = taken_back;
    if (begins_anew) newest_group_ = next_;
    opening.anchors = find_first_tokens(cells, mask);
    append_in_groups(cells, mask);
    has_window_ = has_window_ || (!is_alone_ && shows_window(cells, mask));
    for (const int64_t cell : opening.anchors) at(cell).is_anchored = true;
    return opening;
}

} // namespace winnow::ggml
