// All sequences of a cache in one file: docs/cache.md has its layout.
#pragma once

#include <string>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void save(CacheState& cache, const std::string& path);
void load(CacheState& cache, const std::string& path);

} // namespace winnow::cache
