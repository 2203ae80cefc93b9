// Takes memory before anything changes, copies rows into it, and gives back what became free.
#include "cache/layer/growth.hpp"

#include <algorithm>

#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {

Rows make_packed_rows(CacheState& cache, const Geometry& geometry, int64_t layer, Part part, int64_t slots) {
    return cache.cold_file ? rows_elsewhere(slots) : make_own_rows(cache.device, geometry, layer, part, slots);
}

void take_memory(Device& device, const Geometry& geometry, Layer& layer, const std::vector<int64_t>& packed_slots) {
    layer.dense = make_rows(device, geometry, layer.number, Part::dense, geometry.dense_slots());
    for (size_t i = 0; i < packed_slots.size(); ++i) {
        const Part part = geometry.packed_parts()[i];
        layer.rows(part) = make_own_rows(device, geometry, layer.number, part, packed_slots[i]);
    }
    layer.state = make_state(device, geometry, layer.number);
    take_recall_memory(device, geometry, layer.number, layer);
}

GrowthPlan plan_growth(const CacheState& cache, const Layer& layer, int64_t resident, bool scores, int64_t scratch) {
    const Geometry& geometry = *cache.geometry;
    GrowthPlan plan;
    plan.is_new = !layer.state;
    // Rows of tokens that were removed meanwhile had been counted; under recall they leave gaps.
    if (!geometry.recalls()) resident -= std::max<int64_t>(layer.most_in_packed - layer.index.elsewhere(), 0);
    if (geometry.dense_slots() == 0) resident = std::max<int64_t>(resident, 1); // an attention has at least one segment
    const int64_t packed = geometry.packed_slots(layer.number, resident, geometry.rows_beside(layer.index));
    int64_t packed_slots = 0;
    for (size_t tier = 0; tier < geometry.packed_parts().size(); ++tier) {
        const Part part = geometry.packed_parts()[tier];
        const int64_t its = geometry.slots_of(layer.number, part, packed), now = layer.rows(part).slots;
        packed_slots += std::max(its, now);
        if (its > now) plan.packed_slots[tier] = its;
    }
    const int64_t slots = geometry.dense_slots() + std::max(packed_slots, geometry.recall(layer.number).hot_slots());
    scores = scores || geometry.importance(layer.number).statistic != Statistic::none;
    if (scores && slots > std::max(scratch, cache.scratch.slots)) plan.scratch_slots = slots;
    return plan;
}

Growth grow(CacheState& cache, const Layer& layer, const GrowthPlan& plan) {
    const Geometry& geometry = *cache.geometry;
    Growth growth;
    growth.is_new = plan.is_new;
    if (growth.is_new) {
        growth.dense = make_rows(cache.device, geometry, layer.number, Part::dense, geometry.dense_slots());
        growth.state = make_state(cache.device, geometry, layer.number);
        take_recall_memory(cache.device, geometry, layer.number, growth);
        growth.bytes += bytes_of(geometry, layer.number, Part::dense, geometry.dense_slots()) +
                        geometry.state(layer.number).size + recall_bytes(geometry, layer.number);
    }
    for (size_t tier = 0; tier < geometry.packed_parts().size(); ++tier) {
        const Part part = geometry.packed_parts()[tier];
        const int64_t slots = plan.packed_slots[tier];
        if (slots == 0) continue;
        growth.rows(part) = make_packed_rows(cache, geometry, layer.number, part, slots);
        if (cache.cold_file) {
            growth.region =
                ColdReservation(layer.cold.region ? layer.cold.region : std::make_shared<ColdRegion>(cache.cold_file),
                                cold_file_bytes(geometry, layer.number, slots));
        }
        growth.bytes += counted_bytes_of(geometry, layer.number, part, slots);
    }
    if (plan.scratch_slots > 0) {
        growth.scratch = make_scratch(cache.device, geometry, plan.scratch_slots);
        growth.bytes += geometry.scratch_bytes(plan.scratch_slots);
    }
    return growth;
}

std::vector<Segment> segments_after(const Geometry& geometry, const Layer& layer, const Growth& growth, bool picks) {
    if (growth.is_empty()) return picks ? layer.picked_segments(geometry) : layer.segments(geometry);
    Layer shape(geometry, layer.number);
    shape.dense.slots = growth.is_new ? growth.dense.slots : layer.dense.slots;
    for (const Part part : geometry.packed_parts())
        shape.rows(part).slots = growth.rows(part).slots > 0 ? growth.rows(part).slots : layer.rows(part).slots;
    shape.hot.slots = geometry.recall(layer.number).hot_slots();
    return picks ? shape.picked_segments(geometry) : shape.segments(geometry);
}

void copy_rows(CacheState& cache, const Layer& layer, const Growth& growth) {
    const Geometry& geometry = *cache.geometry;
    for (const Part part : geometry.packed_parts()) {
        const Rows &from = layer.rows(part), &to = growth.rows(part);
        if (!to.k || from.slots == 0) continue;
        copy_slots(cache.device, geometry, layer.number, part, from, from.slots, to);
    }
}

void adopt(CacheState& cache, Layer& layer, Growth growth) {
    if (growth.is_empty()) return;
    const Geometry& geometry = *cache.geometry;
    cache.note_peak(growth.bytes);
    cache.layer_bytes -= layer.bytes();
    if (growth.is_new) {
        layer.dense = std::move(growth.dense);
        layer.state = std::move(growth.state);
        layer.hot = std::move(growth.hot);
        layer.index_memory = std::move(growth.index_memory);
    }
    for (const Part part : geometry.packed_parts())
        if (growth.rows(part).slots > 0) layer.rows(part) = std::move(growth.rows(part));
    if (auto region = growth.region.keep()) layer.cold.region = std::move(region);
    cache.layer_bytes += layer.bytes();
    if (growth.scratch.slots > 0) cache.scratch = std::move(growth.scratch);
}

void commit(CacheState& cache, Layer& layer, Growth growth) {
    copy_rows(cache, layer, growth);
    adopt(cache, layer, std::move(growth));
}

std::vector<int64_t> compact_each(CacheState& cache, Layer& layer) {
    const Geometry& geometry = *cache.geometry;
    if (geometry.residual() == 0) {
        layer.index.leave(layer.index.newest());
        layer.free_listed = 0;
    }
    layer.is_signed = false;
    std::vector<int64_t> most(geometry.packed_parts().size(), 0);
    if (layer.packed.slots == 0) return most;
    if (const int64_t live = layer.cold.map.in_front(); cache.cold_file && !layer.packed.k && live >= 0) {
        std::vector<HeadState> heads = layer.read_head_state(geometry);
        for (HeadState& head : heads) head.live = static_cast<int32_t>(live);
        layer.write_head_state(geometry, heads);
        layer.most_in_packed = live;
        return {live};
    }
    Fetched fetched(cache, layer);
    std::vector<int64_t> together(static_cast<size_t>(geometry.shape(layer.number).kv_heads), 0); // of each head
    for (size_t tier = 0; tier < most.size(); ++tier) {
        const Part part = geometry.packed_parts()[tier];
        if (layer.rows(part).slots == 0) continue;
        for (const Geometry::Heads& its : geometry.alike(layer.number))
            cache.device.launch(SlotCompact{layer.segment(geometry, part, its),
                                            heads_of(layer.head_state(geometry), its.first, its.count),
                                            geometry.recalls()});
        std::vector<HeadState> heads = layer.read_head_state(geometry);
        if (layer.packed_first > 0) { // the rows before are in the file, all of them live
            for (HeadState& head : heads) head.live += static_cast<int32_t>(layer.packed_first);
            layer.write_head_state(geometry, heads);
        }
        for (size_t head = 0; head < heads.size(); ++head) {
            most[tier] = std::max<int64_t>(most[tier], heads[head].live);
            together[head] += heads[head].live;
        }
    }
    fetched.store();
    layer.most_in_packed = *std::max_element(together.begin(), together.end());
    return most;
}

int64_t compact(CacheState& cache, Layer& layer) {
    compact_each(cache, layer);
    return layer.packed.slots == 0 ? 0 : layer.most_in_packed;
}

namespace {

// Without memory for the smaller segment the larger one stays.
void shrink(CacheState& cache, Layer& layer, Part part, int64_t slots) {
    const Geometry& geometry = *cache.geometry;
    Rows& rows = layer.rows(part);
    Rows smaller;
    try {
        smaller = make_packed_rows(cache, geometry, layer.number, part, slots);
    } catch (const Error& error) {
        if (error.status() != WINNOW_ERROR_OUT_OF_MEMORY) throw;
        return;
    }
    if (slots > 0 && smaller.k) copy_slots(cache.device, geometry, layer.number, part, rows, slots, smaller);
    cache.note_peak(counted_bytes_of(geometry, layer.number, part, slots));
    cache.layer_bytes -= layer.bytes();
    rows = std::move(smaller);
    cache.layer_bytes += layer.bytes();
    // Rows that moved on the device alone lie in the file where they lay.
    if (layer.cold.region.use_count() == 1 && !layer.cold.is_moved)
        layer.cold.region->shrink(cold_file_bytes(geometry, layer.number, slots));
}

} // namespace

void shrink(CacheState& cache, const Sequence& sequence, Layer& layer) {
    const Geometry& geometry = *cache.geometry;
    std::vector<int64_t> live;
    // The rows of a file stay where they are until a query picks pages of them, or a pass adds to them.
    const auto is_left = [&](int32_t status, const char* why) {
        if (!cache.cold_file || (status != WINNOW_ERROR_IO && status != WINNOW_ERROR_OUT_OF_MEMORY)) return false;
        cache.log(WINNOW_LOG_WARNING, std::string("the cold tier is not compacted: ") + why);
        return true;
    };
    try {
        live = compact_each(cache, layer);
    } catch (const Error& error) {
        if (is_left(error.status(), error.what())) return;
        throw;
    } catch (const std::bad_alloc&) {
        if (is_left(WINNOW_ERROR_OUT_OF_MEMORY, "out of host memory")) return;
        throw;
    }
    const int64_t reserved = std::max<int64_t>(sequence.reserved - geometry.sink(), 0);
    const int64_t together = layer.packed.slots == 0 ? 0 : layer.most_in_packed;
    const int64_t resident = std::max({layer.most_resident(), together + geometry.keep(), reserved});
    int64_t slots = 0;
    if (together > 0 || reserved > 0 || layer.index.newest() > geometry.keep())
        slots = std::max(together, geometry.packed_slots(layer.number, resident, geometry.rows_beside(layer.index)));
    if (geometry.dense_slots() == 0) slots = std::max(slots, geometry.packed_slots(layer.number, 1, 0)); // as in grow
    // From the lowest up: where one keeps slots, those above it keep all of theirs.
    bool has_below = false;
    for (size_t tier = live.size(); tier-- > 0;) {
        const Part part = geometry.packed_parts()[tier];
        int64_t its = std::max(live[tier], geometry.slots_of(layer.number, part, slots));
        if (has_below) its = std::max(its, geometry.capacity(layer.number, part));
        if (its < layer.rows(part).slots) shrink(cache, layer, part, its);
        has_below = has_below || layer.rows(part).slots > 0;
    }
}

} // namespace winnow::cache
