// Recall: a query of decoding attends to the pages that it picks, instead of to all of the packed segment.
#pragma once

#include "cache/cache_state.hpp"
#include "cache/failures.hpp"
#include "device/pages.hpp"

namespace winnow::cache {

// The most query tokens of a step that pick one by one; more of them attend to everything.
inline constexpr int64_t most_picking = 8;

// Of a prompt, as many tokens come between two ways through the cold segment: what their queries carry of it has to
// find room in 4 MiB.
int64_t tokens_of_piece(const CacheState& cache, int64_t layer);
uint64_t carried_bytes(const CacheState& cache, int64_t layer, int64_t queries);

// What steps take of the cache where their tokens' memory is reserved, and it does not keep yet: for what the queries
// of a prompt carry, and for cell positions.
struct ReservedMemory {
    std::unique_ptr<Buffer> carried, cell_positions;
    uint64_t bytes() const;
};
ReservedMemory reserved_memory(CacheState& cache, int64_t tokens);
void keep(CacheState& cache, ReservedMemory memory);

// No page is hot any more.
void free_frames(const Geometry& geometry, int64_t layer, Buffer& index, const Rows& hot);

// Memory of a layer's hot slots and its page index, without pages and signatures, so that picks begin anew; none where
// nothing is recalled.
// For a layer, or for what a layer is going to have.
template <class Memory>
void take_recall_memory(Device& device, const Geometry& geometry, int64_t layer, Memory& memory) {
    const RecallSizes& sizes = geometry.recall(layer);
    if (!sizes) return;
    memory.hot = make_rows(device, geometry, layer, Part::packed, sizes.hot_slots());
    memory.index_memory = device.allocate(sizes.index_bytes);
    free_frames(geometry, layer, *memory.index_memory, memory.hot);
}
uint64_t recall_bytes(const Geometry& geometry, int64_t layer);

// The codebooks of the request, of all layers; none where signatures are of signs.
std::unique_ptr<Buffer> make_codebooks(Device& device, const Geometry& geometry);

PageIndex page_index(const CacheState& cache, const Layer& layer);

// The rows that an eviction pass put behind those in front get signatures; not yet where there is no center: then the
// next pick signs all pages.
void sign_newest(CacheState& cache, Layer& layer, int64_t rows);

// Brings the live rows together, so that it is known which slots have them, and signs all of their pages.
void sign_all(CacheState& cache, Layer& layer);

// The query's pages come into the hot slots. q: [1, q_heads, 1, head_size]; the mask may be absent.
struct PickRequest {
    Tensor q, mask;
    float scale = 0;
    int64_t visible_from = 0; // token id
};
void pick(CacheState& cache, Layer& layer, const PickRequest& request);

PickCounts pick_counts(const Geometry& geometry, const Layer& layer);
PickCounts pick_counts(const Geometry& geometry, const Sequence& sequence);
// Those of a layer are the cache's from here on.
void take_pick_counts(CacheState& cache, Layer& layer);

// What a layer had picked before a call whose reads and writes of the file may fail.
class PickCountsBackup {
public:
    PickCountsBackup(CacheState& cache, Layer& layer);
    void restore(); // of a layer that still has memory: one that was new is as new again

private:
    CacheState& cache_;
    Layer& layer_;
    std::vector<std::byte> counts_;
};

} // namespace winnow::cache
