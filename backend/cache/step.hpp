// Appending to a layer and attending over it, chunk by chunk.
#pragma once

#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void step(CacheState& cache, const CacheStep& args);

// Which heads have which tokens of a state.
struct Resident {
    int64_t tokens = 0;
    std::vector<bool> of; // [head][token]
    bool operator()(int64_t head, int64_t token) const { return of[static_cast<size_t>(head * tokens + token)]; }
};
// Appends k and v of a step; each head gets the tokens that were resident in it. Waits.
void append_resident(CacheState& cache, const CacheStep& args, const Resident& resident);

} // namespace winnow::cache
