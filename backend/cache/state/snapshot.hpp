// A sequence of a cache, or all of them, as one stream: README.md here has its layout.
#pragma once

#include "cache/cache_state.hpp"

namespace winnow::cache {

void save(CacheState& cache, const CacheSaving& into);
uint64_t saved_size(CacheState& cache, int64_t sequence); // bytes; -1: of all
void load(CacheState& cache, const CacheLoading& from);

} // namespace winnow::cache
