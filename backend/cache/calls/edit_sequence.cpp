// Truncate, remove, shift, copy, anchors and reservations: what is refused is refused before anything changes.
#include "cache/calls/edit_sequence.hpp"

#include <algorithm>

#include "cache/layer/growth.hpp"
#include "cache/layer/slot_map_edit.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {
namespace {

Range range_of(int64_t begin, int64_t end) { return {begin, end == -1 ? no_end : end}; }

void expect_positions(const CacheState& cache) {
    if (cache.geometry->has_cells())
        refuse("the host gives this cache cells and masks, expected a cache that counts positions");
}

bool is_empty(const Sequence& sequence) {
    return std::all_of(sequence.layers.begin(), sequence.layers.end(),
                       [](const Layer& layer) { return layer.index.tokens() == 0; });
}

// The set with the token ids of a range moved by delta.
std::set<int64_t> shifted(const std::set<int64_t>& token_ids, Range range, int64_t delta) {
    std::set<int64_t> moved;
    for (const int64_t token_id : token_ids) moved.insert(range.contains(token_id) ? token_id + delta : token_id);
    return moved;
}

// Nothing of the text before is left in a layer without tokens, whose memory stays: its means, outputs and counts.
void forget(CacheState& cache, Layer& layer) {
    const StateLayout& layout = cache.geometry->state(layer.number);
    if (!layer.state) return;
    const uint64_t evictions = layer.evictions(*cache.geometry);
    for (const StateLayout::Range& part : {layout.head_state, layout.output_sum}) {
        const std::vector<std::byte> none(part.size);
        if (part.size > 0) layer.state->write(part.offset, none.data(), part.size);
    }
    cache.evictions += evictions;
    take_pick_counts(cache, layer);
    layer.outputs = 0;
    layer.has_means = false;
}

// All of a layer's memory again, with what it holds.
Layer copy_of(CacheState& cache, const Layer& from) {
    const Geometry& geometry = *cache.geometry;
    Layer to(geometry, from.number);
    to.index = from.index;
    if (!from.state) return to;
    to.dense = make_rows(cache.device, geometry, from.number, Part::dense, from.dense.slots);
    for (const Part part : geometry.packed_parts())
        to.rows(part) = make_packed_rows(cache, geometry, from.number, part, from.rows(part).slots);
    copy_cold_rows(cache, from, to);
    const StateLayout& layout = geometry.state(from.number);
    to.state = cache.device.allocate(layout.size);
    take_recall_memory(cache.device, geometry, from.number, to);
    to.most_in_packed = from.most_in_packed;
    to.free_listed = from.free_listed;
    to.outputs = from.outputs;
    to.has_means = from.has_means;
    std::vector<std::byte> state(layout.size);
    from.state->read(0, state.data(), state.size());
    clear_evictions(layout, state);
    to.state->write(0, state.data(), state.size());
    for (const Part part : geometry.parts()) {
        const Rows &source = from.rows(part), &target = to.rows(part);
        if (!source.k) continue;
        copy_slots(cache.device, geometry, from.number, part, source, source.slots, target);
    }
    return to;
}

} // namespace

void reserve(CacheState& cache, int64_t sequence_number, int64_t tokens) {
    const Geometry& geometry = *cache.geometry;
    Sequence& sequence = cache.sequence(sequence_number);
    if (tokens == 0) return;
    std::vector<Growth> growths;
    int64_t scratch = 0; // one serves all layers
    uint64_t bytes = 0;
    for (const Layer& layer : sequence.layers) {
        const int64_t resident = std::max(layer.most_resident(), tokens - geometry.sink());
        growths.push_back(grow(cache, layer, plan_growth(cache, layer, resident, false, scratch)));
        scratch = std::max(scratch, growths.back().scratch.slots);
        bytes += growths.back().bytes;
    }
    ReservedMemory memory = reserved_memory(cache, tokens);
    bytes += memory.bytes();
    for (const Growth& growth : growths) take_cold_scratch(cache, growth.packed.slots, bytes);
    cache.note_peak(bytes);
    for (size_t i = 0; i < sequence.layers.size(); ++i) copy_rows(cache, sequence.layers[i], growths[i]);
    for (size_t i = 0; i < sequence.layers.size(); ++i) {
        if (growths[i].is_new) sequence.layers[i].is_signed = geometry.recalls(); // without rows
        adopt(cache, sequence.layers[i], std::move(growths[i]));
    }
    keep(cache, std::move(memory));
    sequence.reserved = std::max(sequence.reserved, tokens);
}

void truncate(CacheState& cache, int64_t sequence_number, int64_t length) {
    expect_positions(cache);
    Sequence& sequence = cache.sequence(sequence_number);
    for (Layer& layer : sequence.layers) {
        if (length >= layer.index.next()) continue;
        edit(cache, layer, SlotEdit::Action::free, {length, no_end});
        if (layer.index.truncate(length)) shrink(cache, sequence, layer);
    }
    if (length > 0) return;
    if (sequence.reserved == 0) {
        drop(cache, sequence);
        return;
    }
    for (Layer& layer : sequence.layers) forget(cache, layer);
}

void remove(CacheState& cache, int64_t sequence_number, int64_t begin, int64_t end) {
    Sequence& sequence = cache.sequence(sequence_number);
    const Range range = range_of(begin, end);
    const bool had_tokens = !is_empty(sequence);
    for (Layer& layer : sequence.layers) {
        edit(cache, layer, SlotEdit::Action::free, range);
        const bool elsewhere = layer.index.remove(range);
        if (elsewhere || cache.geometry->residual() == 0) shrink(cache, sequence, layer);
    }
    std::erase_if(sequence.anchors, [&](int64_t anchor) { return range.contains(anchor); });
    if (!is_empty(sequence) || (!had_tokens && begin > 0)) return;
    drop(cache, sequence);
    sequence.anchors.clear();
    sequence.reserved = 0;
}

void copy(CacheState& cache, int64_t from, int64_t to) {
    const Sequence& source = cache.sequence(from);
    Sequence& target = cache.sequence(to);
    if (from == to) return;
    const uint64_t before = cache.bytes();
    Sequence made;
    for (const Layer& layer : source.layers) made.layers.push_back(copy_of(cache, layer));
    made.anchors = source.anchors;
    made.reserved = source.reserved;
    drop(cache, target);
    const uint64_t without = cache.bytes();
    target = std::move(made);
    cache.layer_bytes += target.bytes();
    cache.peak_bytes = std::max(cache.peak_bytes, before + cache.bytes() - without);
}

void shift(CacheState& cache, int64_t sequence_number, int64_t begin, int64_t end, int64_t delta) {
    expect_positions(cache);
    Sequence& sequence = cache.sequence(sequence_number);
    const Range range = range_of(begin, end);
    const int64_t limit = cache.geometry->context();
    if (delta == 0) return;
    std::vector<TokenIndex> indices;
    for (size_t i = 0; i < sequence.layers.size(); ++i) {
        indices.push_back(sequence.layers[i].index);
        if (indices.back().shift(range, delta, limit)) continue;
        refuse("shift of positions " + std::to_string(begin) + " to " + std::to_string(end) + " by " +
               std::to_string(delta) + ": in layer " + std::to_string(i) +
               " tokens would meet, or come before 0, behind the next token or beyond the context of " +
               std::to_string(limit));
    }
    const std::set<int64_t> anchors = shifted(sequence.anchors, range, delta);
    const bool is_outside = !anchors.empty() && (*anchors.begin() < 0 || *anchors.rbegin() >= limit);
    if (anchors.size() != sequence.anchors.size() || is_outside)
        refuse("shift of positions " + std::to_string(begin) + " to " + std::to_string(end) + " by " +
               std::to_string(delta) + ": anchors would meet, or come before 0 or beyond the context of " +
               std::to_string(limit));
    for (size_t i = 0; i < indices.size(); ++i) {
        const auto layer = static_cast<int64_t>(i);
        cache.geometry->check_anchors(sequence_number, layer, static_cast<int64_t>(anchors.size()),
                                      indices[i].displaced(cache.geometry->keep()));
        const int64_t beside = cache.geometry->rows_beside(indices[i]);
        if (beside > 0 && cache.geometry->covers_all(layer) &&
            cache.geometry->config().budget().unit == Amount::Unit::bytes)
            refuse("shift of positions " + std::to_string(begin) + " to " + std::to_string(end) + " by " +
                   std::to_string(delta) + ": tokens of layer " + std::to_string(i) +
                   " would come to the positions of removed ones whose rows are still there, and a whole context would "
                   "need " +
                   std::to_string(beside) + " rows more than the budget in bytes has");
    }
    for (size_t i = 0; i < sequence.layers.size(); ++i) {
        edit(cache, sequence.layers[i], SlotEdit::Action::shift, range, delta);
        sequence.layers[i].index = std::move(indices[i]);
        mark_anchors(cache, sequence.layers[i], anchors, {0, no_end}); // a token may have come to an anchor's position
    }
    sequence.anchors = anchors;
}

void anchor(CacheState& cache, int64_t sequence_number, std::span<const int64_t> token_ids) {
    const Geometry& geometry = *cache.geometry;
    Sequence& sequence = cache.sequence(sequence_number);
    std::set<int64_t> anchors = sequence.anchors;
    anchors.insert(token_ids.begin(), token_ids.end());
    for (size_t i = 0; i < sequence.layers.size(); ++i)
        geometry.check_anchors(sequence_number, static_cast<int64_t>(i), static_cast<int64_t>(anchors.size()),
                               sequence.layers[i].index.displaced(geometry.keep()));
    const std::set<int64_t> added(token_ids.begin(), token_ids.end());
    for (Layer& layer : sequence.layers) mark_anchors(cache, layer, added, {0, no_end});
    sequence.anchors = std::move(anchors);
}

} // namespace winnow::cache
