// Tokens as ranges of positions, or as a table of cells.
#include "cache/layer/token_index.hpp"

#include <algorithm>

namespace winnow::cache {
namespace {

int64_t length_of(const std::vector<Range>& ranges) {
    int64_t length = 0;
    for (const Range& range : ranges) length += range.end - range.begin;
    return length;
}

// Sorts, joins what touches; false where two overlap.
bool normalize(std::vector<Range>& ranges) {
    std::erase_if(ranges, [](const Range& range) { return range.begin >= range.end; });
    std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
    std::vector<Range> joined;
    for (const Range& range : ranges) {
        if (!joined.empty() && range.begin < joined.back().end) return false;
        if (!joined.empty() && range.begin == joined.back().end)
            joined.back().end = range.end;
        else
            joined.push_back(range);
    }
    ranges = std::move(joined);
    return true;
}

// The token id of one of the newest, removed or not.
int64_t original(int64_t token_id) { return token_id < 0 ? ~token_id : token_id; }

// Where the token of a sink's position goes: to the slot of its own, or where that is taken by a token that was shifted
// down, to the first that is not. There is one, as every token there is has a position of its own before this one.
int64_t sink_slot(const std::vector<int64_t>& sinks, int64_t position) {
    if (sinks[static_cast<size_t>(position)] < 0) return position;
    const auto free = std::find(sinks.begin(), sinks.end(), -1);
    return free == sinks.end() ? -1 : free - sinks.begin();
}

// The parts of the ranges inside and outside of a range.
struct Parts {
    std::vector<Range> inside, outside;
};
Parts divide(const std::vector<Range>& ranges, Range by) {
    Parts parts;
    for (const Range& range : ranges) {
        parts.outside.push_back({range.begin, std::min(range.end, by.begin)});
        parts.inside.push_back({std::max(range.begin, by.begin), std::min(range.end, by.end)});
        parts.outside.push_back({std::max(range.begin, by.end), range.end});
    }
    normalize(parts.inside);
    normalize(parts.outside);
    return parts;
}

} // namespace

TokenIndex::TokenIndex(int64_t sink, int64_t cells) : cell_count_(cells), sinks_(static_cast<size_t>(sink), -1) {}

int64_t TokenIndex::tokens() const { return has_cells() ? cell_tokens_ : length_of(ranges_); }

int64_t TokenIndex::elsewhere() const {
    return tokens() - (static_cast<int64_t>(sinks_.size()) - std::count(sinks_.begin(), sinks_.end(), -1)) -
           (newest() - removed(newest()));
}

int64_t TokenIndex::sinks_lost() const {
    const int64_t to_come = std::max<int64_t>(static_cast<int64_t>(sinks_.size()) - next_, 0);
    return std::max<int64_t>(std::count(sinks_.begin(), sinks_.end(), -1) - to_come, 0);
}

int64_t TokenIndex::rows_beside(int64_t residual, int64_t limit) const {
    if (has_cells()) return sinks_lost();
    const int64_t kept = std::clamp<int64_t>(residual - (limit - next_), 0, newest());
    return std::max<int64_t>(sinks_lost() + removed(newest()) - removed(newest() - kept) - (next_ - tokens()), 0);
}

std::vector<Run> TokenIndex::place(int64_t first, int64_t count, std::span<const int32_t> cells) const {
    std::vector<Run> runs;
    int64_t others = moved_ + newest();
    std::vector<int64_t> sinks; // with those that are placed
    if (next_ < static_cast<int64_t>(sinks_.size())) sinks = sinks_;
    for (int64_t i = 0; i < count; ++i) {
        const int64_t position = next_ + i;
        const int64_t token_id = cells.empty() ? position : cells[static_cast<size_t>(first + i)];
        const int64_t slot = position < static_cast<int64_t>(sinks.size()) ? sink_slot(sinks, position) : -1;
        const bool is_sink = slot >= 0;
        if (is_sink) sinks[static_cast<size_t>(slot)] = token_id;
        const int64_t place = is_sink ? slot : others++;
        if (!runs.empty()) {
            Run& last = runs.back();
            if (last.is_sink == is_sink && last.token_id + last.count == token_id && last.place + last.count == place) {
                ++last.count;
                continue;
            }
        }
        runs.push_back({first + i, 1, token_id, position, is_sink, place});
    }
    return runs;
}

void TokenIndex::make_room(std::span<const int32_t> cells) {
    if (cells.empty()) return;
    const size_t needed = static_cast<size_t>(*std::max_element(cells.begin(), cells.end())) + 1, now = cells_.size();
    if (needed <= now) return;
    cells_.reserve(std::min(std::max(needed, 2 * now), static_cast<size_t>(cell_count_)));
    cells_.resize(needed, -1);
}

void TokenIndex::append(const Run& run) {
    for (int64_t i = 0; i < run.count; ++i) {
        if (run.is_sink)
            sinks_[static_cast<size_t>(run.place + i)] = run.token_id + i;
        else
            newest_.push_back(run.token_id + i);
        if (has_cells()) cells_[static_cast<size_t>(run.token_id + i)] = static_cast<int32_t>(run.position + i);
    }
    next_ += run.count;
    if (has_cells()) {
        cell_tokens_ += run.count;
        return;
    }
    const Range added{run.token_id, run.token_id + run.count};
    if (!ranges_.empty() && ranges_.back().end == added.begin) { // as usual
        ranges_.back().end = added.end;
        return;
    }
    ranges_.push_back(added);
    normalize(ranges_);
}

int64_t TokenIndex::removed(int64_t rows) const {
    return std::count_if(newest_.begin(), newest_.begin() + rows, [](int64_t token_id) { return token_id < 0; });
}

bool TokenIndex::are_newest_last() const {
    return has_cells() || newest_.empty() || original(newest_.front()) >= next_ - newest();
}

bool TokenIndex::stay_newest_last() const {
    if (has_cells() || newest_.empty()) return true;
    if (next_ < static_cast<int64_t>(sinks_.size())) return false; // tokens that come may not be among the newest
    int64_t least = next_ - newest();
    return std::all_of(newest_.begin(), newest_.end(), [&](int64_t token_id) { return original(token_id) >= least++; });
}

bool TokenIndex::holds(int64_t token_id) const {
    if (has_cells()) {
        const auto cell = static_cast<size_t>(token_id);
        return cell < cells_.size() && cells_[cell] >= 0;
    }
    const auto after = std::upper_bound(ranges_.begin(), ranges_.end(), token_id,
                                        [](int64_t value, const Range& range) { return value < range.begin; });
    return after != ranges_.begin() && std::prev(after)->contains(token_id);
}

int64_t TokenIndex::displaced(int64_t keep) const {
    if (has_cells()) return 0; // nothing is shifted there
    const auto sinks = static_cast<int64_t>(sinks_.size());
    const int64_t in_slots = std::count_if(sinks_.begin(), sinks_.end(),
                                           [&](int64_t token_id) { return token_id >= 0 && token_id < sinks; });
    return length_of(divide(ranges_, {0, sinks}).inside) - in_slots + newest_elsewhere(keep);
}

// Once so many tokens have come that the residual window keeps the last `rows` of its present rows beside them, the
// tokens at the last `rows` positions before the next one are among the newest. A row counts from that number of rows
// on at which it is both kept and at such a position.
int64_t TokenIndex::newest_elsewhere(int64_t keep) const {
    const auto sinks = static_cast<int64_t>(sinks_.size());
    const int64_t most_rows = std::min(keep, newest());
    std::vector<int64_t> counted(static_cast<size_t>(most_rows) + 1, 0);
    for (int64_t row = 1; row <= most_rows; ++row) {
        const int64_t token_id = newest_[static_cast<size_t>(newest() - row)];
        const int64_t from = std::max(row, next_ - token_id);
        if (token_id >= sinks && from <= most_rows) ++counted[static_cast<size_t>(from)];
    }
    int64_t in_residual = 0, most = 0;
    for (int64_t rows = 1; rows <= most_rows; ++rows) {
        in_residual += counted[static_cast<size_t>(rows)];
        const int64_t tokens = length_of(divide(ranges_, {std::max(next_ - rows, sinks), no_end}).inside);
        most = std::max(most, tokens - in_residual);
    }
    return most;
}

bool TokenIndex::remove(Range token_ids) {
    int64_t elsewhere = 0;
    for (int64_t& token_id : newest_) {
        if (token_id < 0 || !token_ids.contains(token_id)) continue;
        token_id = ~token_id;
        --elsewhere;
    }
    for (int64_t& token_id : sinks_) {
        if (token_id < 0 || !token_ids.contains(token_id)) continue;
        token_id = -1;
        --elsewhere;
    }
    if (!has_cells()) {
        Parts parts = divide(ranges_, token_ids);
        elsewhere += length_of(parts.inside);
        ranges_ = std::move(parts.outside);
        return elsewhere > 0;
    }
    const int64_t end = std::min(token_ids.end, static_cast<int64_t>(cells_.size()));
    for (int64_t cell = token_ids.begin; cell < end; ++cell) {
        int32_t& position = cells_[static_cast<size_t>(cell)];
        if (position < 0) continue;
        position = -1;
        --cell_tokens_;
        ++elsewhere;
    }
    return elsewhere > 0;
}

bool TokenIndex::truncate(int64_t length) {
    const bool elsewhere = remove({length, no_end});
    while (!newest_.empty() && original(newest_.back()) >= length) newest_.pop_back();
    next_ = std::min(next_, length);
    return elsewhere;
}

bool TokenIndex::shift(Range token_ids, int64_t delta, int64_t limit) {
    const int64_t next = next_ + (token_ids.contains(next_) ? delta : 0);
    const Parts parts = divide(ranges_, token_ids);
    std::vector<Range> shifted = parts.outside;
    for (const Range& range : parts.inside) shifted.push_back({range.begin + delta, range.end + delta});
    if (!normalize(shifted) || next < 0 || next > limit) return false;
    if (!shifted.empty() && (shifted.front().begin < 0 || shifted.back().end > next)) return false;
    next_ = next;
    for (int64_t& token_id : sinks_)
        if (token_id >= 0 && token_ids.contains(token_id)) token_id += delta;
    for (int64_t& token_id : newest_)
        if (token_ids.contains(original(token_id)))
            token_id = token_id < 0 ? ~std::clamp<int64_t>(~token_id + delta, 0, limit) : token_id + delta;
    ranges_ = std::move(shifted);
    return true;
}

TokenIndex::Saved TokenIndex::save() const {
    Saved saved{next_, moved_, ranges_, cells_, sinks_, std::vector<int64_t>(newest_.begin(), newest_.end())};
    saved.cells.resize(static_cast<size_t>(cell_count_), -1);
    return saved;
}

bool TokenIndex::restore(const Saved& saved, int64_t most_newest, int64_t limit) {
    const auto is_below = [](int64_t value, int64_t least, int64_t end) { return value >= least && value < end; };
    const int64_t token_ids = has_cells() ? cell_count_ : limit;
    const auto newest = static_cast<int64_t>(saved.newest.size());
    bool fits = is_below(saved.next, 0, limit + 1) && saved.moved >= 0 && newest <= most_newest &&
                static_cast<int64_t>(saved.cells.size()) == cell_count_ && saved.sinks.size() == sinks_.size();
    int64_t end = -1; // ranges do not touch
    for (const Range& range : saved.ranges) {
        fits = fits && range.begin > end && range.begin < range.end && range.end <= saved.next && !has_cells();
        end = range.end;
    }
    for (const int32_t position : saved.cells) fits = fits && is_below(position, -1, saved.next);
    for (const int64_t token_id : saved.sinks) fits = fits && is_below(token_id, -1, token_ids);
    for (const int64_t token_id : saved.newest) fits = fits && is_below(token_id, -limit - 1, token_ids);
    if (!fits) return false;
    next_ = saved.next;
    moved_ = saved.moved;
    ranges_ = saved.ranges;
    const auto is_taken = [](int32_t position) { return position >= 0; };
    cells_.assign(saved.cells.begin(), std::find_if(saved.cells.rbegin(), saved.cells.rend(), is_taken).base());
    cell_tokens_ = std::count_if(cells_.begin(), cells_.end(), is_taken);
    sinks_ = saved.sinks;
    newest_.assign(saved.newest.begin(), saved.newest.end());
    return true;
}

} // namespace winnow::cache
