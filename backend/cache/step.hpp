// Appending to a layer and attending over it, piece by piece.
#pragma once

#include "cache/state.hpp"

namespace winnow::cache {

void step(CacheState& cache, const CacheStep& args);

} // namespace winnow::cache
