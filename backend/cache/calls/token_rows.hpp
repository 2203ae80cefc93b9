// Rows by token: out of a layer's segments, into them, and appended again.
#pragma once

#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void read(CacheState& cache, const CacheRows& rows);
void write(CacheState& cache, const CacheRows& rows);
void append_rows(CacheState& cache, const CacheRows& rows); // as read gave them

// In which slot of each segment of a layer each head has each of the tokens, [head][token]; -1: not there.
std::vector<std::vector<int32_t>> find_slots(const CacheState& cache, const Layer& layer,
                                             const std::vector<int32_t>& token_ids);

// [1, heads, rows, columns] of four bytes each, in the host's memory.
template <class T>
Tensor tensor_over(Type type, std::vector<T>& values, int64_t heads, int64_t rows, int64_t columns) {
    static_assert(sizeof(T) == 4);
    Tensor tensor = tensor_of(type, heads, rows, columns);
    tensor.data = reinterpret_cast<std::byte*>(values.data());
    return tensor;
}

} // namespace winnow::cache
