// Tensors as Winnow takes them, over memory of the host's.
#pragma once

#include <cstdint>
#include <vector>

#include "winnow_cache.h"

namespace winnow::ggml {

// [1, 1, 1, count], without gaps.
winnow_tensor flat(uint32_t type, int64_t element_bytes, const void* data, int64_t count);

// A tensor [1, 1, 1, count] of positions or cells.
winnow_tensor token_ids_over(const std::vector<int32_t>& ids);
// A description of the rows of these tokens, without k and v as yet; `tokens` has to outlive it.
winnow_cache_rows_desc rows_desc(int64_t layer, int64_t stream, const winnow_tensor& tokens);

// A tensor [1, heads, rows, size]. Rows begin `row_bytes` apart; within a row, heads begin `stride` elements apart, and
// the tensor has a head's elements from `skip` on.
struct RowsLayout {
    int64_t heads, rows, size;
    int64_t element_bytes, row_bytes;
    int64_t stride, skip = 0;
};
winnow_tensor rows_over(uint32_t type, const void* data, const RowsLayout& layout);

} // namespace winnow::ggml
