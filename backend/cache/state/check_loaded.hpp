// Whether what a file or the rows of a host say of a layer can be: a checksum tells damage, not whether a cache wrote
// it.
#pragma once

#include <set>

#include "cache/cache_state.hpp"

namespace winnow::cache {

// What of a layer would mislead a later call, or NULL: slot maps that hold other tokens than the token index, one twice
// or in another's slot, more than the budget, lists of slots that are taken, anchors that are none.
const char* wrong_with(const Geometry& geometry, const std::set<int64_t>& anchors, const Layer& layer);
// Throws Error that says what is wrong with a layer of a sequence, or with its anchors.
void check_loaded(const CacheState& cache, int64_t sequence_number, const Sequence& sequence);

} // namespace winnow::cache
