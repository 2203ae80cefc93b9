// Rows by token: out of a layer's stores, into them, and appended again.
#pragma once

#include "cache/state.hpp"

namespace winnow::cache {

void read(CacheState& cache, const CacheRows& rows);
void write(CacheState& cache, const CacheRows& rows);
void restore(CacheState& cache, const CacheRows& rows);

} // namespace winnow::cache
