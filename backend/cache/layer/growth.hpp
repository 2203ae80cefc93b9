// The memory of a layer as it grows and shrinks.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "cache/cache_state.hpp"

namespace winnow::cache {

// Memory that a layer lacks.
struct GrowthPlan {
    bool is_new = false;
    std::array<int64_t, most_tiers> packed_slots{}; // of each packed segment that has to be larger
    int64_t scratch_slots = 0;                      // without slots: it suffices

    bool is_empty() const { return !is_new && packed_slots == std::array<int64_t, most_tiers>{} && scratch_slots == 0; }
};

// Memory that a layer is going to have, taken before anything changes.
struct Growth : SegmentRows { // those without slots stay as they are
    bool is_new = false;
    Rows hot;               // of recall, as the index
    ColdReservation region; // of the packed segment, where its rows lie in a file
    std::unique_ptr<Buffer> state, index_memory;
    Scratch scratch; // without slots: as it is
    uint64_t bytes = 0;

    bool is_empty() const { return !is_new && packed_slots() == 0 && scratch.slots == 0; }
};

// Memory of a packed segment; without buffers where its rows lie in a file.
Rows make_packed_rows(CacheState& cache, const Geometry& geometry, int64_t layer, Part part, int64_t slots);

// Takes the memory of a layer that has none, whose packed segments get so many slots each, in the order of
// Geometry::packed_parts. Where it throws, the layer has some of it.
void take_memory(Device& device, const Geometry& geometry, Layer& layer, const std::vector<int64_t>& packed_slots);
// What a layer lacks whose heads are going to hold `resident` tokens outside the sinks' slots. scores: scratch for the
// scores of an attention is needed, also under a policy without an importance. scratch: slots for which another growth
// has taken scratch already.
GrowthPlan plan_growth(const CacheState& cache, const Layer& layer, int64_t resident, bool scores, int64_t scratch = 0);
// Takes it.
Growth grow(CacheState& cache, const Layer& layer, const GrowthPlan& plan);
// Segments as they are going to be, for validation; picks: those of a query that picks pages.
std::vector<Segment> segments_after(const Geometry& geometry, const Layer& layer, const Growth& growth, bool picks);
// The rows that a layer has come into the growth; then the growth becomes the layer's, which cannot fail. Where several
// layers grow, all are copied before the first changes.
void copy_rows(CacheState& cache, const Layer& layer, const Growth& growth);
void adopt(CacheState& cache, Layer& layer, Growth growth);
void commit(CacheState& cache, Layer& layer, Growth growth); // both

// Compacts the packed segments and tells how many tokens a head has there at most. No slot is free-listed afterwards.
int64_t compact(CacheState& cache, Layer& layer);
// The same, and how many a head has in each of them at most.
std::vector<int64_t> compact_each(CacheState& cache, Layer& layer);

// Compacts a layer's packed segments and gives back the memory that became free. Without memory for a smaller one the
// larger one stays.
void shrink(CacheState& cache, const Sequence& sequence, Layer& layer);

} // namespace winnow::cache
