// Whether what a file says of a sequence can be: a checksum tells damage, not whether a cache wrote it.
#pragma once

#include "cache/cache_state.hpp"

namespace winnow::cache {

// Throws Error where a value of the file would mislead a later call: slot maps that hold other tokens than the
// token index, one twice or in another's slot, more than the budget, lists of slots that are taken, anchors without
// room.
void check_loaded(const CacheState& cache, int64_t sequence_number, const Sequence& sequence);

} // namespace winnow::cache
