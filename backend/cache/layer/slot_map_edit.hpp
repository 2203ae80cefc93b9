// Changes of slot maps without a change of rows: tokens that go, get other positions, or become anchors.
#pragma once

#include <set>

#include "cache/cache_state.hpp"

namespace winnow::cache {

// Changes the entries of slot maps whose token ids are in a range, and nothing else.
void edit(CacheState& cache, Layer& layer, SlotEdit::Action action, Range token_ids, int64_t delta = 0);

// Marks the tokens of a layer whose token ids are among the anchors and in a range.
void mark_anchors(CacheState& cache, Layer& layer, const std::set<int64_t>& anchors, Range token_ids);

} // namespace winnow::cache
