// Changes to sequences that append nothing: tokens are removed, shifted or made anchors, and memory is reserved.
#pragma once

#include <span>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void reserve(CacheState& cache, int64_t sequence_number, int64_t tokens);
void truncate(CacheState& cache, int64_t sequence_number, int64_t length);
void remove(CacheState& cache, int64_t sequence_number, int64_t begin, int64_t end);
void copy(CacheState& cache, int64_t from, int64_t to);
void shift(CacheState& cache, int64_t sequence_number, int64_t begin, int64_t end, int64_t delta);
void anchor(CacheState& cache, int64_t sequence_number, std::span<const int64_t> token_ids);

} // namespace winnow::cache
