// Rows of states that llama.cpp writes, until they become tokens: a head's layout is not known before the first
// attention, and a state is whole when llama.cpp goes on to something else.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cache_shape.hpp"
#include "cell_tracker.hpp"

namespace winnow::ggml {

class PendingStates {
public:
    // Rows of one root in the order in which they were written, one after the other.
    struct Rows {
        std::vector<int32_t> cells;
        std::vector<char> bytes;
    };
    struct State {
        int64_t stream;
        std::map<const ggml_tensor*, Rows> rows_of; // by root
    };

    // The shape has to stay.
    explicit PendingStates(const CacheShape& shape) : shape_(shape) {}
    bool empty() const { return states_.empty(); }

    // Throws std::runtime_error where it is not whole rows.
    void write(const ggml_tensor* root, const char* data, size_t offset, size_t size);
    // What is written from now on is another state's.
    void end_state() { last_written_ = nullptr; }
    // Copies the rows of these cells of a root to where they belong in rows from `first` on; the others stay.
    void read(const ggml_tensor* root, int64_t stream, int64_t first, std::vector<char>& rows) const;
    void drop(int64_t stream, const CellRange& range);
    // `to` has what `from` has, and nothing else.
    void copy(int64_t from, int64_t to);
    void clear();
    // All of them, in the order in which they were written; there are none any more.
    std::vector<State> take();

private:
    bool begins_state(const ggml_tensor* root, int64_t stream, int32_t cell) const;

    const CacheShape& shape_;
    std::vector<State> states_;
    const ggml_tensor* last_written_ = nullptr;
};

} // namespace winnow::ggml
