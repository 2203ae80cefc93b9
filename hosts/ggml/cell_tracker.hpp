// llama.cpp names neither sequences nor removals. What it tells all the same: the cells of one stream and the masks of
// its tokens.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "ggml.h"

namespace winnow::ggml {

// A slice of an attention mask, f16 or f32: a row for each token, a column for each cell.
class MaskSlice {
public:
    MaskSlice(const ggml_tensor* mask, int64_t slice);
    int64_t columns() const { return columns_; }
    const void* data() const { return data_; }
    bool sees(int64_t row, int64_t cell) const {
        if (cell >= columns_) return false;
        const char* at = data_ + static_cast<size_t>(row) * row_bytes_ + static_cast<size_t>(cell) * element_bytes_;
        if (element_bytes_ == 2) return *reinterpret_cast<const uint16_t*>(at) != f16_minus_infinity;
        return *reinterpret_cast<const uint32_t*>(at) != f32_minus_infinity;
    }

private:
    static constexpr uint16_t f16_minus_infinity = 0xfc00;
    static constexpr uint32_t f32_minus_infinity = 0xff800000;

    const char* data_;
    size_t row_bytes_, element_bytes_;
    int64_t columns_;
};

struct CellRange {
    int64_t begin, end;
};
// As few ranges as there can be.
std::vector<CellRange> to_ranges(std::vector<int64_t> cells);

// Frees only what is certain to be free: tokens that are overwritten, and cells beyond the columns of a mask, which
// reach over all that are in use. That a mask hides a token says nothing: it may have left a window, stand behind a
// chunk's edge, where sequences go when positions are removed, be another sequence's, or have been shifted.
class CellTracker {
public:
    // is_alone: the stream has one sequence. sinks: how many first tokens of a sequence are to stay. has_window: tokens
    // leave one; masks may show it.
    CellTracker(int64_t cells, bool is_alone, int64_t sinks, bool has_window);

    // What has to happen before the tokens of these cells are appended.
    struct Opening {
        std::vector<CellRange> dead;  // nobody will ask for the tokens in these cells
        std::vector<int64_t> guessed; // of the dead, those that somebody might ask for
        int64_t taken_back = 0;       // tokens from which the first token's sequence went back, as far as masks tell
        std::vector<int64_t> anchors; // cells of first tokens of sequences that begin now, beside others
        int64_t dead_cells() const;
    };
    Opening open(std::span<const int32_t> cells, const MaskSlice& mask);
    // The same where the mask does not tell which cells are free: its columns alone do.
    Opening open(std::span<const int32_t> cells, int64_t columns);
    // Tokens that come without an attention.
    void append(std::span<const int32_t> cells);
    // A state that comes back, in the order of its cells: one sequence, or, where the stream was empty, any number.
    // Where it overwrites the first token of a sequence beside others, the rest of that sequence is dropped, too, as a
    // guess: a state is exact in an empty stream. tokens_seen does not count it. replaces: what a stream of one
    // sequence held is gone; else it came after the state.
    Opening restore(std::span<const int32_t> cells, bool replaces);

    // The positions of the tokens in these cells moved, mostly because others before them are gone: the first token of
    // their sequence says nothing about the rest any more.
    void note_shift(std::span<const int32_t> cells);
    // The tokens in these cells are gone.
    void remove(const CellRange& range);
    void clear();
    void copy(const CellTracker& from);                  // all but tokens_seen
    int64_t tokens_seen() const { return tokens_seen_; } // since it was made
    int64_t tokens() const { return resident_; }

    // How many tokens came before that of a cell, since its sequence began, as far as masks tell; where sequences share
    // the stream, theirs count, too, and since the stream was empty if it is not known which sequence it is of.
    int64_t count_before(int64_t cell) const;

    // Whether a token of the batch sees one that comes after it.
    static bool sees_ahead(std::span<const int32_t> cells, const MaskSlice& mask);

private:
    struct Cell {
        int64_t order = -1; // how many tokens came before, and before all that were restored with it; -1: there is none
        int64_t group = -1; // the order of the first token of its sequence; -1: not known
        bool is_anchored = false;
        bool is_taken_back = false; // its sequence went back behind it
    };
    Cell& at(int64_t cell) { return cells_[static_cast<size_t>(cell)]; }
    const Cell& at(int64_t cell) const { return cells_[static_cast<size_t>(cell)]; }
    int64_t columns_of(const MaskSlice& mask) const;
    int64_t find_seen(int64_t token, const MaskSlice& mask, const std::vector<bool>& is_coming) const;
    void forget(int64_t cell);
    // The cells that tokens are in behind a mask's columns, which reach over all cells that llama.cpp uses.
    std::vector<int64_t> cells_behind(int64_t columns) const;
    std::vector<int64_t> find_orphans(std::span<const int32_t> cells) const;
    int64_t note_taken_back(std::span<const int32_t> cells, const MaskSlice& mask);
    // What is told of the dead; where nobody is left, the stream begins anew.
    Opening drop(std::span<const int32_t> cells, std::vector<int64_t> dead);
    bool shows_window(std::span<const int32_t> cells, const MaskSlice& mask) const;
    void append_in_groups(std::span<const int32_t> cells, const MaskSlice& mask);
    std::vector<int64_t> find_first_tokens(std::span<const int32_t> cells, const MaskSlice& mask) const;

    std::vector<Cell> cells_;
    bool is_alone_;
    bool is_of_window_; // as it was told
    bool has_window_;   // or as the masks show
    int64_t sinks_;
    int64_t next_ = 0;         // tokens since the stream was empty
    int64_t newest_group_ = 0; // of a stream of one sequence
    int64_t resident_ = 0;     // cells with a token
    int64_t tokens_seen_ = 0;
};

} // namespace winnow::ggml
