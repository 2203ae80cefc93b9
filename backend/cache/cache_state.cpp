// The memory of layers as it grows and shrinks, and eviction passes.
#include "cache/cache_state.hpp"

#include <algorithm>
#include <optional>

#include "cache/cold_rows.hpp"
#include "cache/pressure.hpp"
#include "cache/recall.hpp"
#include "device/network.hpp"

namespace winnow::cache {

Scratch make_scratch(Device& device, const Geometry& geometry, int64_t slots) {
    Scratch scratch;
    if (slots == 0) return scratch;
    scratch.slots = slots;
    scratch.scores = device.allocate(geometry.scores_bytes(slots));
    scratch.row_stats = device.allocate(geometry.row_stats_bytes());
    return scratch;
}

CacheState::CacheState(Device& on, std::unique_ptr<Geometry> sizes) : device(on), geometry(std::move(sizes)) {
    sequences = new_sequences();
}

CacheState::CacheState(CacheState& before, std::vector<Sequence> empty)
    : device(before.device), geometry(std::move(before.geometry)), log(std::move(before.log)),
      cold_file(std::move(before.cold_file)), codebooks(std::move(before.codebooks)), sequences(std::move(empty)) {}

std::vector<Sequence> CacheState::new_sequences() const {
    std::vector<Sequence> all;
    for (int64_t i = 0; i < geometry->request().max_sequences; ++i) all.push_back(new_sequence());
    return all;
}

Sequence CacheState::new_sequence() const {
    Sequence sequence;
    for (int64_t layer = 0; layer < geometry->shape().layers; ++layer) sequence.layers.emplace_back(*geometry, layer);
    return sequence;
}

void CacheState::replace_sequences(std::vector<Sequence>& others) {
    sequences.swap(others);
    layer_bytes = 0;
    for (const Sequence& sequence : sequences) layer_bytes += sequence.bytes();
}

uint64_t Sequence::bytes() const {
    uint64_t sum = 0;
    for (const Layer& layer : layers) sum += layer.bytes();
    return sum;
}

double CacheState::pressure_now() const { return pressure < 0 ? memory_pressure().value_or(0) : pressure; }

Rows make_packed_rows(CacheState& cache, const Geometry& geometry, int64_t layer, Part part, int64_t slots) {
    return cache.cold_file ? rows_elsewhere(slots) : make_own_rows(cache.device, geometry, layer, part, slots);
}

Growth grow(CacheState& cache, const Layer& layer, int64_t resident, bool scores, int64_t scratch) {
    const Geometry& geometry = *cache.geometry;
    Growth growth;
    growth.is_new = !layer.state;
    if (growth.is_new) {
        growth.dense = make_rows(cache.device, geometry, layer.number, Part::dense, geometry.dense_slots());
        growth.state = make_state(cache.device, geometry, layer.number);
        take_recall_memory(cache.device, geometry, growth);
        growth.bytes += bytes_of(geometry, layer.number, Part::dense, geometry.dense_slots()) + geometry.state().size +
                        recall_bytes(geometry);
    }
    // Rows of tokens that were removed meanwhile had been counted; under recall they leave gaps.
    if (!geometry.recall()) resident -= std::max<int64_t>(layer.most_in_packed - layer.index.elsewhere(), 0);
    if (geometry.dense_slots() == 0) resident = std::max<int64_t>(resident, 1); // an attention has at least one segment
    const int64_t packed = geometry.packed_slots(layer.number, resident, geometry.rows_beside(layer.index));
    int64_t packed_slots = 0;
    for (const Part part : geometry.packed_parts()) {
        const int64_t its = geometry.slots_of(layer.number, part, packed), now = layer.rows(part).slots;
        packed_slots += std::max(its, now);
        if (its <= now) continue;
        growth.rows(part) = make_packed_rows(cache, geometry, layer.number, part, its);
        if (cache.cold_file) {
            growth.region =
                ColdReservation(layer.cold.region ? layer.cold.region : std::make_shared<ColdRegion>(cache.cold_file),
                                cold_file_bytes(geometry, its));
        }
        growth.bytes += counted_bytes_of(geometry, layer.number, part, its);
    }
    const int64_t slots = geometry.dense_slots() + std::max(packed_slots, geometry.recall().hot_slots());
    scores = scores || geometry.importance(layer.number).statistic != Statistic::none;
    if (scores && slots > std::max(scratch, cache.scratch.slots)) {
        growth.scratch = make_scratch(cache.device, geometry, slots);
        growth.bytes += geometry.scratch_bytes(slots);
    }
    return growth;
}

std::vector<Segment> segments_after(const Geometry& geometry, const Layer& layer, const Growth& growth, bool picks) {
    if (growth.is_empty()) return picks ? layer.picked_segments(geometry) : layer.segments(geometry);
    Layer shape(geometry, layer.number);
    shape.dense.slots = growth.is_new ? growth.dense.slots : layer.dense.slots;
    for (const Part part : geometry.packed_parts())
        shape.rows(part).slots = growth.rows(part).slots > 0 ? growth.rows(part).slots : layer.rows(part).slots;
    shape.hot.slots = geometry.recall().hot_slots();
    return picks ? shape.picked_segments(geometry) : shape.segments(geometry);
}

void commit(CacheState& cache, Layer& layer, Growth growth) {
    if (growth.is_empty()) return;
    const Geometry& geometry = *cache.geometry;
    for (const Part part : geometry.packed_parts()) {
        const Rows &from = layer.rows(part), &to = growth.rows(part);
        if (!to.k || from.slots == 0) continue;
        copy_slots(cache.device, geometry, layer.number, part, from, from.slots, to);
    }
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

namespace {

// The eviction pass of a layer, yet without the rows that leave the residual window.
SlotEvict pass_of(const CacheState& cache, const Layer& layer, int64_t incoming, int64_t less, Demanded demanded) {
    const Geometry& geometry = *cache.geometry;
    const Shape& shape = geometry.shape();
    const TokenIndex& index = layer.index;
    SlotEvict args;
    args.description = geometry.describe(layer.number, cache.pressure_now());
    if (geometry.has_cells()) { // appending has no end there, but no more tokens than cells are resident
        args.description.context = no_end;
        if (geometry.covers_all(layer.number)) {
            args.description.budget = std::max(args.description.budget, geometry.request().cells);
            args.description.context = index.next() + geometry.request().cells - index.tokens();
        }
    }
    // Without a residual window, free-listed slots are a promise that only a head itself can keep: which sinks' slots
    // are empty there, so that its budget would allow it more than the packed segment holds, nobody else knows.
    if (geometry.residual() == 0 && demanded == Demanded::by_budget)
        args.wanted_free = geometry.has_cells() ? incoming : std::min(incoming, shape.context - index.next());
    args.description.budget -= less;
    if (demanded == Demanded::by_room) {
        args.description.budget = anchor_flag; // no layer holds more
        args.description.trigger = {1, 1};
    }
    args.dense = layer.dense_segment(geometry);
    args.packed = layer.packed_segment(geometry); // of heads that store unlike rows launch_pass has those of each
    for (const Part part : geometry.packed_parts().subspan(1))
        if (layer.rows(part).slots > 0) args.lower.push_back(layer.segment(geometry, part, {0, shape.kv_heads}));
    // Where rows of a state come to free-listed slots, those are of the first packed segment.
    if (geometry.residual() == 0 && demanded == Demanded::by_room && !args.lower.empty())
        args.wanted_first = std::min(geometry.cadence(), layer.packed.slots);
    args.seen = index.next();
    args.incoming = incoming;
    args.k_norm = geometry.k_norm();
    args.v_norm = geometry.v_norm();
    args.residual_first = geometry.sink();
    const StateLayout& layout = geometry.state();
    args.positions = state_tensor(Type::i32, layout.positions, layer.state.get(), 1, geometry.request().cells);
    args.network = state_tensor(Type::f32, layout.network, layer.state.get(), shape.kv_heads, network_numbers);
    args.free_slots = state_tensor(Type::i32, layout.free_slots, layer.state.get(), shape.kv_heads,
                                   most_free_listed(geometry.config()));
    args.head_state = layer.head_state(geometry);
    return args;
}

// One launch for all heads; where they store unlike rows, one for each run of neighbours that are alike.
void launch_pass(CacheState& cache, const Layer& layer, const SlotEvict& args) {
    const Geometry& geometry = *cache.geometry;
    const std::span<const Geometry::Heads> alike = geometry.alike(layer.number);
    if (alike.size() == 1) {
        cache.device.launch(args);
        return;
    }
    for (const auto& [first, count] : alike) {
        SlotEvict its = args;
        its.first_head = first;
        its.dense = heads_of(args.dense, first, count);
        its.packed = layer.segment(geometry, Part::packed, {first, count});
        for (Segment& lower : its.lower) lower = heads_of(lower, first, count);
        for (Tensor* tensor : {&its.output_sum, &its.network, &its.free_slots, &its.head_state})
            *tensor = heads_of(*tensor, first, count);
        cache.device.launch(its);
    }
}

} // namespace

bool lacks_room(const Geometry& geometry, const Layer& layer, int64_t leaving, int64_t more, Demanded demanded) {
    if (!geometry.has_cold_budget() || geometry.covers_all(layer.number)) return false;
    if (layer.most_in_packed + leaving > geometry.most_packed(layer.number)) return true;
    const int64_t resident = geometry.sink() - layer.index.sinks_lost() + layer.most_resident() + more;
    return demanded == Demanded::by_budget &&
           resident + geometry.coming() > geometry.plan().layer_tokens[static_cast<size_t>(layer.number)];
}

uint64_t cell_positions_bytes(const Geometry& geometry) { return 4 * static_cast<uint64_t>(geometry.request().cells); }

std::vector<int64_t> free_in_packed(const Geometry& geometry, const Layer& layer) {
    std::vector<int64_t> free(static_cast<size_t>(geometry.shape().kv_heads), 0);
    for (const Part part : geometry.packed_parts()) {
        const std::vector<int32_t> map = layer.map_of(geometry, layer.rows(part));
        for (size_t i = 0; i < map.size(); ++i) free[i * free.size() / map.size()] += map[i] < 0;
    }
    return free;
}

int64_t room_of_newest(const Geometry& geometry, const Layer& layer, int64_t chunk) {
    const int64_t sinks = geometry.sink() - layer.index.sinks_lost();
    const int64_t tokens = geometry.plan().layer_tokens[static_cast<size_t>(layer.number)];
    const int64_t before_last = tokens - sinks - geometry.coming(); // that may be resident
    const int64_t room = std::min(before_last + chunk, geometry.most_packed(layer.number)) - layer.most_resident();
    return std::max<int64_t>(room / chunk, 1) * chunk;
}

void evict_oldest(CacheState& cache, Layer& layer, int64_t leaving, Buffer* cell_positions, Demanded demanded) {
    const Geometry& geometry = *cache.geometry;
    if (!lacks_room(geometry, layer, leaving, 0, demanded)) return;
    Fetched fetched(cache, layer);
    SlotEvict args = pass_of(cache, layer, geometry.coming(), 0, demanded);
    args.wanted_free = leaving - layer.index.removed(leaving);
    if (geometry.has_cells()) {
        const std::span<const int32_t> of_cells = layer.index.positions();
        cell_positions->write(0, of_cells.data(), of_cells.size_bytes());
        args.positions = tensor_of(Type::i32, 1, 1, geometry.request().cells, cell_positions);
    }
    cache.device.launch(args);
    sign_all(cache, layer);                          // which reads how many rows there are, and so waits
    layer.centered = geometry.recall().signed_slots; // soon there is another center
    fetched.store();
}

void evict(CacheState& cache, Layer& layer, int64_t leaving, int64_t incoming, int64_t less, Demanded demanded) {
    const Geometry& geometry = *cache.geometry;
    const Shape& shape = geometry.shape();
    const TokenIndex& index = layer.index;
    // Of a cold segment in a file, whose rows lie all in front, only its end changes.
    std::optional<Fetched> fetched;
    if (cache.cold_file && layer.is_signed)
        fetched.emplace(Fetched::EndOf{}, cache, layer, leaving);
    else
        fetched.emplace(cache, layer);
    // What leaves goes behind the rows that there are, not between them.
    if (geometry.recall() && !layer.is_signed) compact(cache, layer);
    SlotEvict args = pass_of(cache, layer, incoming, less, demanded);
    if (geometry.recall() && layer.is_signed && layer.packed.slots > 0) {
        // Rows in front are signed and attended to, also where a head has free slots among them: what leaves goes
        // behind.
        const int64_t page = geometry.recall().page_slots;
        const int64_t first = layer.in_front / page * page - layer.packed_first;
        args.packed = slots_of(args.packed, first, layer.packed.slots - first);
    }
    const int64_t free_listed = args.wanted_free;
    if (geometry.residual() > 0) {
        args.residual_count = geometry.residual();
        args.leaving_offset = index.first_newest() % geometry.residual();
        args.leaving_count = leaving;
        args.set_means = geometry.config().center() && !layer.has_means && leaving > 0;
    }
    const StateLayout& layout = geometry.state();
    if (layout.output_sum.size > 0) { // also under a policy that does not add to it: another one may follow
        args.output_sum =
            state_tensor(Type::f32, layout.output_sum, layer.state.get(), shape.kv_heads, shape.v_head_size);
        args.outputs = layer.outputs;
    }
    launch_pass(cache, layer, args);

    ++cache.eviction_passes;
    layer.outputs = 0;
    layer.has_means = layer.has_means || args.set_means;
    const int64_t moved = geometry.residual() > 0 ? leaving : index.newest();
    layer.most_in_packed = std::min(layer.most_in_packed + moved, geometry.most_packed(layer.number));
    if (geometry.recall() && layer.is_signed) { // nobody was evicted: the rows lie behind those that there are
        // But where some were shifted up, the oldest tokens that went may have been among these rows.
        layer.is_signed = !geometry.has_cold_budget() || layer.index.are_newest_last();
        if (layer.is_signed) sign_newest(cache, layer, moved - layer.index.removed(moved));
    }
    layer.index.leave(moved);
    if (geometry.has_cells()) // whose tokens go when others get their cells, also from the packed segment
        layer.most_in_packed = std::min(layer.most_in_packed, layer.index.elsewhere());
    layer.free_listed = free_listed;
    fetched->store();
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
    std::vector<int64_t> together(static_cast<size_t>(geometry.shape().kv_heads), 0); // of each head
    for (size_t tier = 0; tier < most.size(); ++tier) {
        const Part part = geometry.packed_parts()[tier];
        if (layer.rows(part).slots == 0) continue;
        for (const Geometry::Heads& its : geometry.alike(layer.number))
            cache.device.launch(SlotCompact{layer.segment(geometry, part, its),
                                            heads_of(layer.head_state(geometry), its.first, its.count),
                                            bool{geometry.recall()}});
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
        layer.cold.region->shrink(cold_file_bytes(geometry, slots));
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

void drop(CacheState& cache, Sequence& sequence) {
    uint64_t evictions = 0;
    for (const Layer& layer : sequence.layers) evictions += layer.evictions(*cache.geometry);
    const PickCounts picks = pick_counts(*cache.geometry, sequence);
    std::vector<Layer> fresh = cache.new_sequence().layers;
    cache.layer_bytes -= sequence.bytes();
    sequence.layers.swap(fresh);
    cache.evictions += evictions;
    cache.picks += picks;
}

uint64_t launches(const Device& device) {
    winnow_stats stats{};
    device.stats(stats);
    return stats.kernel_launches;
}

void fail(Device& device, bool has_changed, const Error& error) {
    if (!has_changed) throw error;
    try {
        device.finish();
    } catch (const Error&) { // what failed first says more
    }
    throw after_a_change(error);
}

void edit(CacheState& cache, Layer& layer, SlotEdit::Action action, Range token_ids, int64_t delta) {
    SlotEdit args;
    args.action = action;
    args.segments = with_own_slots(layer.segments_with_copies(*cache.geometry));
    ColdMap map; // the layer's from where nothing fails any more
    if (cache.cold_file) {
        map = layer.cold.map;
        map.edit(action, token_ids.begin, token_ids.end, delta);
    }
    args.begin = token_ids.begin;
    args.end = std::min<int64_t>(token_ids.end, anchor_flag);
    args.delta = delta;
    if (!args.segments.empty() && args.begin < args.end) cache.device.launch(args);
    if (cache.cold_file) layer.cold.map = std::move(map);
}

void mark_anchors(CacheState& cache, Layer& layer, const std::set<int64_t>& anchors, Range token_ids) {
    for (auto it = anchors.lower_bound(token_ids.begin); it != anchors.end() && *it < token_ids.end;) {
        Range together{*it, *it};
        for (; it != anchors.end() && *it == together.end && *it < token_ids.end; ++it) ++together.end;
        edit(cache, layer, SlotEdit::Action::anchor, together);
    }
}

} // namespace winnow::cache
