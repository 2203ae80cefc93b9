// What the host knows of one layer of one sequence: which tokens were appended and not removed, and where the newest of
// them lie. Which of the older ones a head still holds only the slot maps know.
#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <span>
#include <vector>

namespace winnow::cache {

inline constexpr int64_t most_seen = 1 << 30; // tokens of a layer; with cells, which are appended again and again
inline constexpr int64_t no_end = std::numeric_limits<int64_t>::max(); // of a range: every token id from its begin on

struct Range {
    int64_t begin = 0, end = 0;
    bool contains(int64_t token_id) const { return token_id >= begin && token_id < end; }
    friend bool operator==(const Range&, const Range&) = default;
};

// Tokens of a step that are appended by one operation: consecutive token ids in consecutive places.
struct Run {
    int64_t first = 0, count = 0; // tokens of the step
    int64_t token_id = 0;         // of the first
    int64_t position = 0;         // of the first
    bool is_sink = false;
    int64_t place = 0; // a sink's slot; of the others how many were appended before
};

class TokenIndex {
public:
    // Token ids are positions, or, with cells, the host's cells.
    TokenIndex(int64_t sink, int64_t cells);

    int64_t next() const { return next_; } // position of the next token: tokens seen so far
    int64_t tokens() const;                // appended and not removed
    int64_t elsewhere() const;             // of them, those that are neither in sinks' slots nor newest
    // Tokens that are not in sinks' slots and came after the last eviction pass's: the residual rows, or without a
    // residual window the slots used of those that are free-listed. Removed ones count.
    int64_t newest() const { return static_cast<int64_t>(newest_.size()); }
    int64_t first_newest() const { return moved_; } // how many tokens came before those
    int64_t sinks_lost() const;                     // sinks' slots that are empty and that no token is going to have

    // Rows beside sinks' slots and `residual` others that all tokens up to `limit` may need because of those slots, and
    // because of removed tokens that are then still among the newest; fewer where positions have no tokens.
    int64_t rows_beside(int64_t residual, int64_t limit) const;

    // The next tokens, from token `first` of the step on, in runs. Cells of the whole step, or none.
    std::vector<Run> place(int64_t first, int64_t count, std::span<const int32_t> cells) const;
    void append(const Run& run);
    void leave(int64_t rows) { // the oldest of the newest are in the packed segment now
        newest_.erase(newest_.begin(), newest_.begin() + rows);
        moved_ += rows;
    }
    int64_t removed(int64_t rows) const; // how many removed tokens are among the oldest of the newest
    // Whether the newest have the last positions: they have not where some were shifted up and left a gap.
    bool are_newest_last() const;
    bool stay_newest_last() const; // also once some of them have left and others came
    // Of the token in each cell, or -1; cells behind the last have none.
    std::span<const int32_t> positions() const { return cells_; }
    // Takes the memory for tokens in these cells, so that append needs none for them.
    void make_room(std::span<const int32_t> cells);

    bool holds(int64_t token_id) const;
    // The most tokens that an eviction pass from now on finds where sinks and the newest `keep` are, though they are in
    // neither sinks' slots nor the rows that the residual window keeps. Shifts bring them there, or the next token down
    // to them while the rows of removed tokens fill the residual window. Tokens that come make it no more.
    int64_t displaced(int64_t keep) const;
    // Remove and truncate tell whether they removed tokens that are neither newest nor sinks.
    bool remove(Range token_ids);
    bool truncate(int64_t length);
    // Adds delta to the token ids of a range, and to the next if it is among them. False, and nothing is done, where
    // two would meet or one leave [0, limit], limit that of the next.
    bool shift(Range token_ids, int64_t delta, int64_t limit);

    // What a file keeps.
    struct Saved {
        int64_t next = 0, moved = 0;
        std::vector<Range> ranges;
        std::vector<int32_t> cells;
        std::vector<int64_t> sinks, newest;
    };
    Saved save() const;
    // False where that is no token index of these sizes.
    bool restore(const Saved& saved, int64_t most_newest, int64_t limit);

private:
    bool has_cells() const { return cell_count_ > 0; }
    int64_t newest_elsewhere(int64_t keep) const;

    int64_t next_ = 0;
    int64_t moved_ = 0;
    std::vector<Range> ranges_;  // of positions; ascending, apart
    int64_t cell_count_;         // 0: token ids are positions
    std::vector<int32_t> cells_; // as positions(): as many as were named, since most sequences never have most cells
    std::vector<int64_t> sinks_; // the token id in each sink's slot, or -1
    std::deque<int64_t> newest_; // their token ids in the order of appending; of a removed one its complement
    int64_t cell_tokens_ = 0;
};

} // namespace winnow::cache
