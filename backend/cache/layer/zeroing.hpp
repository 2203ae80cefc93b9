// When small elements of a layer's rows become zero (elastic=).
#pragma once

#include "cache/cache_state.hpp"

namespace winnow::cache {

// After a chunk has attended, before which the layer had seen `before` tokens: a pass where the number of tokens has
// come to the layer's turn.
void zero_after_chunk(CacheState& cache, const Layer& layer, int64_t before);

// Before an eviction pass: rows that are going to be packed can only be zeroed now.
void zero_before_packing(CacheState& cache, const Layer& layer);

} // namespace winnow::cache
