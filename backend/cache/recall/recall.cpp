// Signatures, picks, and what is counted of them.
#include "cache/recall/recall.hpp"

#include <algorithm>

#include "cache/layer/eviction_pass.hpp"
#include "cache/layer/growth.hpp"
#include "cache/recall/cold_rows.hpp"

namespace winnow::cache {
namespace {

constexpr int64_t most_carried = 4 << 20; // bytes

Tensor index_tensor(const StateLayout::Range& part, Buffer* index, int64_t heads, int64_t rows, int64_t columns) {
    Tensor tensor = tensor_of(Type::i32, heads, rows, columns, index);
    tensor.offset = part.offset;
    return tensor;
}

// Of which slots pages are signed.
struct Signed {
    int64_t first = 0, end = 0;
    int64_t center_end = 0;    // not 0: by a new center, of the rows before
    bool keeps_frames = false; // the rows are as they were
};

// `cold` is the segment from first_slot on.
void sign(CacheState& cache, Layer& layer, const Segment& cold, int64_t first_slot, const Signed& what) {
    const Geometry& geometry = *cache.geometry;
    const int64_t page_slots = geometry.page_slots();
    if (what.first >= what.end) return;
    cache.device.launch(PageSign{page_index(cache, layer), cold, layer.hot_segment(geometry), what.first / page_slots,
                                 (what.end + page_slots - 1) / page_slots, first_slot, what.center_end,
                                 what.keeps_frames});
}

// Of the rows that are in memory.
void sign(CacheState& cache, Layer& layer, const Signed& what) {
    sign(cache, layer, layer.packed_segment(*cache.geometry), layer.packed_first, what);
}

// The same stretch by stretch, from the first slot on.
void sign_stretches(CacheState& cache, Layer& layer, const Signed& what) {
    Stretches stretches(cache, layer, what.end, cache.geometry->recall(layer.number).signed_slots);
    while (stretches.next()) {
        const int64_t first = stretches.first();
        sign(cache, layer, stretches.segment(), first,
             {first, first + stretches.segment().slots(), first == 0 ? what.center_end : 0, what.keeps_frames});
        stretches.read_ahead();
    }
}

// Signs all pages anew where there are enough rows by now for another center.
void follow_center(CacheState& cache, Layer& layer) {
    const int64_t rows = cache.geometry->recall(layer.number).center_rows(layer.in_front);
    if (rows <= layer.centered) return;
    const bool have_signatures = layer.centered > 0; // those of pages that changed since then are free already
    sign_stretches(cache, layer, {0, layer.in_front, rows, have_signatures});
    layer.centered = rows;
}

// The cold segment without its rows, which lie in a file: its slot map, in scratch memory of the cache's.
Segment mapped_segment(CacheState& cache, const Layer& layer) {
    const Geometry& geometry = *cache.geometry;
    ColdScratch& scratch = cache.cold_scratch;
    const auto size = 4 * static_cast<uint64_t>(layer.cold.map.maps() * layer.packed.slots);
    take_slot_map(cache, size);                                                     // a larger one where heads disagree
    if (scratch.slots != layer.packed.slots || scratch.written != layer.cold.map) { // layers mostly have the same
        scratch.slots = 0;
        scratch.map->write(0, layer.cold.map.entries(layer.packed.slots).data(), size);
        scratch.written = layer.cold.map;
        scratch.slots = layer.packed.slots;
    }
    Segment segment = layer.packed_segment(geometry);
    segment.k.type = segment.v.type = Type::none;
    segment.tokens.buffer = scratch.map.get();
    if (layer.cold.map.maps() == 1) segment.tokens.stride[1] = 0;
    return segment;
}

} // namespace

int64_t tokens_of_piece(const CacheState& cache, int64_t layer) {
    const int64_t chunk = cache.geometry->chunk(), row = static_cast<int64_t>(carried_bytes(cache, layer, 1));
    return std::max<int64_t>(most_carried / row / chunk, 1) * chunk;
}

uint64_t carried_bytes(const CacheState& cache, int64_t layer, int64_t queries) {
    const LayerShape& shape = cache.geometry->shape(layer);
    return 4 * static_cast<uint64_t>(shape.q_heads * queries * cache.device.carried_floats(shape.v_head_size));
}

uint64_t ReservedMemory::bytes() const {
    return (carried ? carried->size() : 0) + (cell_positions ? cell_positions->size() : 0);
}

ReservedMemory reserved_memory(CacheState& cache, int64_t tokens) {
    const Geometry& geometry = *cache.geometry;
    ReservedMemory memory;
    if (!geometry.recalls() || tokens == 0) return memory;
    if (!cache.carried) {
        // Queries without keys may be more than there are cells.
        const int64_t most = geometry.has_cells() ? no_end : geometry.context();
        memory.carried = cache.device.allocate(geometry.most_bytes(
            [&](int64_t layer) { return carried_bytes(cache, layer, std::min(tokens_of_piece(cache, layer), most)); }));
    }
    if (geometry.has_cells() && geometry.has_cold_budget() && !cache.cell_positions)
        memory.cell_positions = cache.device.allocate(cell_positions_bytes(geometry));
    return memory;
}

void keep(CacheState& cache, ReservedMemory memory) {
    if (memory.carried) cache.carried = std::move(memory.carried);
    if (memory.cell_positions) cache.cell_positions = std::move(memory.cell_positions);
}

void free_frames(const Geometry& geometry, int64_t layer, Buffer& index, const Rows& hot) {
    const StateLayout::Range& part = geometry.recall(layer).frame_pages;
    if (hot.slots == 0) return;
    const std::vector<int32_t> none(static_cast<size_t>(std::max(part.size, hot.tokens->size()) / 4), free_slot);
    index.write(part.offset, none.data(), part.size);
    hot.tokens->write(0, none.data(), hot.tokens->size());
}

uint64_t recall_bytes(const Geometry& geometry, int64_t layer) {
    const RecallSizes& sizes = geometry.recall(layer);
    return sizes ? bytes_of(geometry, layer, Part::packed, sizes.hot_slots()) + sizes.index_bytes : 0;
}

std::unique_ptr<Buffer> make_codebooks(Device& device, const Geometry& geometry) {
    if (geometry.config().signature_kind() != SignatureKind::codes) return nullptr;
    const std::vector<uint16_t>& halves = *geometry.request().codebooks;
    std::unique_ptr<Buffer> codebooks = device.allocate(2 * halves.size());
    codebooks->write(0, halves.data(), codebooks->size());
    return codebooks;
}

PageIndex page_index(const CacheState& cache, const Layer& layer) {
    const RecallSizes& sizes = cache.geometry->recall(layer.number);
    const LayerShape& shape = cache.geometry->shape(layer.number);
    PageIndex index{sizes.page_slots,
                    index_tensor(sizes.signatures, layer.index_memory.get(), shape.kv_heads, sizes.blocks,
                                 signature_block_bytes(shape.head_size, sizes.kind) / 4),
                    index_tensor(sizes.frame_pages, layer.index_memory.get(), shape.kv_heads, 1, sizes.frames)};
    if (cache.codebooks == nullptr) {
        index.centers =
            state_tensor(Type::f16, sizes.centers, layer.index_memory.get(), shape.kv_heads, shape.head_size + 1);
        return index;
    }
    index.codebooks = state_tensor(Type::f16, sizes.codebooks, cache.codebooks.get(), shape.kv_heads,
                                   codebook_numbers(shape.head_size));
    return index;
}

void sign_newest(CacheState& cache, Layer& layer, int64_t rows) {
    const int64_t first = layer.in_front;
    layer.in_front += rows;
    const bool has_center = layer.centered > 0 || cache.geometry->recall(layer.number).center_rows(layer.in_front) == 0;
    if (layer.packed.slots > 0 && has_center) sign(cache, layer, {first, layer.in_front});
}

void sign_all(CacheState& cache, Layer& layer) {
    const RecallSizes& sizes = cache.geometry->recall(layer.number);
    const bool lies_in_front =
        cache.cold_file && !layer.packed.k && !layer.cold.is_moved && layer.cold.map.in_front() >= 0;
    if (lies_in_front) {
        const int64_t in_front = compact(cache, layer);
        sign_stretches(cache, layer, {0, in_front, sizes.center_rows(in_front)});
        layer.in_front = in_front;
    } else {
        Fetched fetched(cache, layer);
        const int64_t in_front = compact(cache, layer);
        if (layer.packed.slots > 0)
            sign(cache, layer, {0, std::max<int64_t>(in_front, 1), sizes.center_rows(in_front)});
        fetched.store();
        layer.in_front = in_front;
    }
    layer.centered = sizes.center_rows(layer.in_front);
    layer.is_signed = true;
}

void pick(CacheState& cache, Layer& layer, const PickRequest& request) {
    const Geometry& geometry = *cache.geometry;
    if (layer.packed.slots == 0) return;
    if (!layer.is_signed) sign_all(cache, layer);
    follow_center(cache, layer);
    const RecallSizes& sizes = geometry.recall(layer.number);
    PagePick args;
    args.index = page_index(cache, layer);
    const bool is_in_file = !layer.packed.k;
    args.cold = is_in_file ? mapped_segment(cache, layer) : layer.packed_segment(geometry);
    args.hot = layer.hot_segment(geometry);
    args.q = request.q;
    args.scale = request.scale;
    args.bonus = sizes.bonus;
    args.count = sizes.frames;
    // The rows that came last into the packed segment lie behind all others.
    args.pinned_from = std::max<int64_t>(layer.in_front - sizes.newest, 0) / sizes.page_slots;
    if (sizes.newest == 0) args.pinned_from = sizes.blocks * block_pages;
    args.visible_from = request.visible_from;
    args.visible_end = anchor_flag; // token ids are below it
    args.mask = request.mask;
    args.counts = index_tensor(sizes.counts, layer.index_memory.get(), geometry.shape(layer.number).kv_heads, 1, 4);
    if (!is_in_file) {
        cache.device.launch(args);
        return;
    }
    const std::vector<int32_t> before = frame_pages(geometry, layer);
    cache.device.launch(args);
    try {
        bring_pages(cache, layer, before);
    } catch (...) {
        free_frames(geometry, layer.number, *layer.index_memory, layer.hot);
        throw;
    }
}

PickCounts pick_counts(const Geometry& geometry, const Layer& layer) {
    PickCounts sum;
    const StateLayout::Range& part = geometry.recall(layer.number).counts;
    std::vector<uint64_t> counts(static_cast<size_t>(part.size / 8));
    if (layer.index_memory) layer.index_memory->read(part.offset, counts.data(), part.size);
    for (size_t i = 0; i < counts.size(); i += 2) {
        sum.picked += counts[i];
        sum.missed += counts[i + 1];
    }
    return sum;
}

PickCounts pick_counts(const Geometry& geometry, const Sequence& sequence) {
    PickCounts sum;
    for (const Layer& layer : sequence.layers) sum += pick_counts(geometry, layer);
    return sum;
}

void take_pick_counts(CacheState& cache, Layer& layer) {
    const PickCounts counts = pick_counts(*cache.geometry, layer);
    if (counts.picked == 0) return;
    const StateLayout::Range& part = cache.geometry->recall(layer.number).counts;
    const std::vector<std::byte> none(part.size);
    layer.index_memory->write(part.offset, none.data(), none.size());
    cache.picks += counts;
}

PickCountsBackup::PickCountsBackup(CacheState& cache, Layer& layer) : cache_(cache), layer_(layer) {
    if (!layer.index_memory) return;
    const StateLayout::Range& part = cache.geometry->recall(layer.number).counts;
    counts_.resize(part.size);
    layer.index_memory->read(part.offset, counts_.data(), counts_.size());
}

void PickCountsBackup::restore() {
    if (layer_.index_memory && !counts_.empty())
        layer_.index_memory->write(cache_.geometry->recall(layer_.number).counts.offset, counts_.data(),
                                   counts_.size());
}

} // namespace winnow::cache
