// Rows of a state to and from the Winnow cache: exact ones, as cache_export_rows gives them and cache_import_rows takes
// them.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "cache_handle.hpp"
#include "pending_states.hpp"

namespace winnow::ggml {

// Rows of a root in which no head has a token: all NaN.
std::vector<char> empty_rows(const ggml_tensor* root, int64_t count);

// Rows of a state on their way to the host, which asks for a range of cells after another: of the first layer's keys,
// of the second's, and, after all keys, of the values. Where there are several ranges, all values of a layer are
// exported at once, so that they have one ledger, even where a range has too little room for one.
class StateReader {
public:
    // Fills rows of a root, those of a stream's cells from `first` on. Rows that cannot be exact are
    // rounded, with a warning. Throws std::runtime_error.
    void read(const CacheHandle& cache, const ggml_tensor* root, int64_t stream, int64_t first,
              std::vector<char>& rows);
    // What is read from now on is another state.
    void end() { *this = {}; }

private:
    bool read_values(const CacheHandle& cache, const ggml_tensor* root, const CellRange& range,
                     std::vector<char>& rows);

    int64_t stream_ = 0;
    std::map<const ggml_tensor*, std::vector<CellRange>> ranges_; // of keys, by root
    const ggml_tensor* values_ = nullptr;                         // those that were exported at once
    size_t next_ = 0;                                             // the range that comes next
    size_t at_ = 0;                                               // where it begins in their rows
    std::vector<char> rows_;
};

// Fills with what is no row that comes back: a damaged record, wherever a row begins.
void fill_damaged(char* data, size_t size);

// The cells of a state. Throws std::runtime_error where a tensor has other ones than the first, or none.
const std::vector<int32_t>& cells_of(const CacheShape& shape, const PendingStates::State& state);
// Appends a state's tokens. Throws std::runtime_error.
void import_state(const CacheHandle& cache, const PendingStates::State& state);

} // namespace winnow::ggml
