// Rows of a state to and from the Winnow cache: exact ones, as cache_export_rows gives them and cache_import_rows takes
// them.
#pragma once

#include <cstdint>
#include <vector>

#include "cache_handle.hpp"
#include "pending_states.hpp"

namespace winnow::ggml {

// Rows of a root in which no head has a token: all NaN.
std::vector<char> empty_rows(const ggml_tensor* root, int64_t count);
// Fills rows of a root, those of a stream's cells from `first` on. Throws std::runtime_error.
void export_rows(const CacheHandle& cache, const ggml_tensor* root, int64_t stream, int64_t first,
                 std::vector<char>& rows);

// Fills with what is no row that comes back: a damaged record, wherever a row begins.
void fill_damaged(char* data, size_t size);

// The cells of a state. Throws std::runtime_error where a tensor has other ones than the first, or none.
const std::vector<int32_t>& cells_of(const CacheShape& shape, const PendingStates::State& state);
// Appends a state's tokens. Throws std::runtime_error.
void import_state(const CacheHandle& cache, const PendingStates::State& state);

} // namespace winnow::ggml
