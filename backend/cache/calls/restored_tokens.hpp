// Tokens of a state: rows that come back, each head getting those that were resident in it.
#pragma once

#include <functional>
#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

// Which heads have which tokens of a state.
struct Resident {
    int64_t tokens = 0;
    std::vector<bool> of; // [head][token]
    bool operator()(int64_t head, int64_t token) const { return of[static_cast<size_t>(head * tokens + token)]; }
};
// Appends k and v of the arguments, which have no queries, and then has `completed` change their rows. Waits. Where a
// file fails either of them, the layer is as it was.
void restore_tokens(
    CacheState& cache, const CacheStep& args, const Resident& resident, const std::function<void()>& completed = [] {});

} // namespace winnow::cache
