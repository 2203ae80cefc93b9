// Rows of states that llama.cpp writes, until they become tokens: a head's layout is not known before the first
// attention, and a state is whole when llama.cpp goes on to something else.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "cache_shape.hpp"
#include "cell_tracker.hpp"

namespace winnow::ggml {

class PendingStates {
public:
    // Rows of one root in the order in which they were written, one after the other. Of what was set aside there are
    // no bytes, because all of them are 0.
    struct Rows {
        std::vector<int32_t> cells;
        std::vector<char> bytes;
    };
    struct State {
        int64_t stream;
        std::map<const ggml_tensor*, Rows> rows_of; // by root
        bool is_set_aside = false;                  // also once it is taken, because a token sees it
        std::optional<uint64_t> number;             // as Arrivals tells states
        bool is_zero() const;                       // each byte is 0
    };

    // The shape has to stay.
    explicit PendingStates(const CacheShape& shape) : shape_(shape) {}
    bool empty() const { return states_.empty(); }
    // The one that was begun last; NULL where there is none.
    State* newest() { return states_.empty() ? nullptr : &states_.back(); }

    // Takes rows, in parts that may end within one. Throws std::runtime_error where a part begins within a row and the
    // one before it did not end there.
    void write(const ggml_tensor* root, const char* data, size_t offset, size_t size);
    // What is written from now on is another state's.
    void end_state();
    // Copies the rows of these cells of a root to where they belong in rows from `first` on; the others stay.
    void read(const ggml_tensor* root, int64_t stream, int64_t first, std::vector<char>& rows) const;
    // Whether there is a row of the root for each of these cells.
    bool covers(const ggml_tensor* root, int64_t stream, const CellRange& cells) const;
    void drop(int64_t stream, const CellRange& range);
    // `to` has what `from` has, and nothing else.
    void copy(int64_t from, int64_t to);
    void clear();
    // All that are not set aside, in the order in which they were written; there are none of them any more.
    std::vector<State> take();

    // A state of zeros stays here until a mask shows it.
    void set_aside(State state);
    bool has_set_aside() const;
    std::vector<uint64_t> numbers_set_aside() const;
    // Of a stream those that were set aside and of which one of the first `tokens` rows of the mask sees a cell.
    std::vector<State> take_seen(int64_t stream, const MaskSlice& mask, int64_t tokens);

private:
    void write_row(const ggml_tensor* root, int64_t number); // that has begun, and is whole
    bool begins_state(const ggml_tensor* root, int64_t stream, int32_t cell) const;

    template <typename Condition>
    std::vector<State> take_if(Condition&& condition);

    const CacheShape& shape_;
    std::vector<State> states_;
    const ggml_tensor* last_written_ = nullptr; // of which a row was whole
    // Of the last part: its root, its end, and the beginning of the row that a part from there on goes on with.
    const ggml_tensor* unfinished_ = nullptr;
    size_t end_ = 0;
    std::vector<char> begun_;
};

} // namespace winnow::ggml
