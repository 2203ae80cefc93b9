// Eviction passes: when one is due is known here, what it does is the device's (SlotEvict).
#pragma once

#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

// Why an eviction pass evicts: because the policy's budget requires it, or only so that rows find slots.
enum class Demanded { by_budget, by_room };
// Launches an eviction pass under the budget reduced by `less` tokens, which moves the oldest `leaving` residual rows
// into the packed segment.
void evict(CacheState& cache, Layer& layer, int64_t leaving, int64_t incoming, int64_t less = 0,
           Demanded demanded = Demanded::by_budget);

// Under recall with a budget of tokens: where an eviction pass that moves so many rows would find no room, the oldest
// tokens go, more of them than this pass needs, and the others' rows are moved together and signed.
// cell_positions: cell_positions_bytes, in a cache with cells.
void evict_oldest(CacheState& cache, Layer& layer, int64_t leaving, Buffer* cell_positions,
                  Demanded demanded = Demanded::by_budget);
// Whether it has to: a head may hold more than an eviction pass of these rows leaves, or lack slots for them.
// more: so many tokens may come before.
bool lacks_room(const Geometry& geometry, const Layer& layer, int64_t leaving, int64_t more = 0,
                Demanded demanded = Demanded::by_budget);
uint64_t cell_positions_bytes(const Geometry& geometry);

// How many slots of a layer's packed segments are free in each head.
std::vector<int64_t> free_in_packed(const Geometry& geometry, const Layer& layer);

// How many tokens may then come before evict_oldest is due again: whole chunks, at least one.
int64_t room_of_newest(const Geometry& geometry, const Layer& layer, int64_t chunk);

} // namespace winnow::cache
