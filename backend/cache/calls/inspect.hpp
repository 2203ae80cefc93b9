// What a cache holds, in numbers: sizes from the host's own books, tokens from the slot maps.
#pragma once

#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void stats(const CacheState& cache, winnow_cache_stats& out);
void sequence_stats(CacheState& cache, int64_t sequence, winnow_cache_stats& out);
std::vector<int32_t> positions(CacheState& cache, int64_t sequence, int64_t layer, int64_t head);
std::vector<int32_t> segments(CacheState& cache, int64_t sequence, int64_t layer, int64_t head);
std::vector<float> importance(CacheState& cache, int64_t sequence, int64_t layer, int64_t head);

} // namespace winnow::cache
