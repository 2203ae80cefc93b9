// What a cache holds, in numbers: sizes from the host's own books, tokens from the slot maps.
#pragma once

#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void stats(const CacheState& cache, winnow_cache_stats& out);
void sequence_stats(CacheState& cache, int64_t sequence, winnow_cache_stats& out);
std::vector<HeldToken> tokens(CacheState& cache, int64_t sequence, int64_t layer, int64_t head, bool wants_importance);

} // namespace winnow::cache
