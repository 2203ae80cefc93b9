// Makes the arguments of an eviction pass, launches it, and keeps the layer's counts.
#include "cache/layer/eviction_pass.hpp"

#include <algorithm>
#include <optional>

#include "cache/layer/growth.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"
#include "device/network.hpp"

namespace winnow::cache {

namespace {

// The eviction pass of a layer, yet without the rows that leave the residual window.
SlotEvict pass_of(const CacheState& cache, const Layer& layer, int64_t incoming, int64_t less, Demanded demanded) {
    const Geometry& geometry = *cache.geometry;
    const LayerShape& shape = geometry.shape(layer.number);
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
        args.wanted_free = geometry.has_cells() ? incoming : std::min(incoming, geometry.context() - index.next());
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
    const StateLayout& layout = geometry.state(layer.number);
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
    std::vector<int64_t> free(static_cast<size_t>(geometry.shape(layer.number).kv_heads), 0);
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
    sign_all(cache, layer);                                      // which reads how many rows there are, and so waits
    layer.centered = geometry.recall(layer.number).signed_slots; // soon there is another center
    fetched.store();
}

void evict(CacheState& cache, Layer& layer, int64_t leaving, int64_t incoming, int64_t less, Demanded demanded) {
    const Geometry& geometry = *cache.geometry;
    const LayerShape& shape = geometry.shape(layer.number);
    const TokenIndex& index = layer.index;
    // Of a cold segment in a file, whose rows lie all in front, only its end changes.
    std::optional<Fetched> fetched;
    if (cache.cold_file && layer.is_signed)
        fetched.emplace(Fetched::EndOf{}, cache, layer, leaving);
    else
        fetched.emplace(cache, layer);
    // What leaves goes behind the rows that there are, not between them.
    if (geometry.recalls() && !layer.is_signed) compact(cache, layer);
    SlotEvict args = pass_of(cache, layer, incoming, less, demanded);
    if (geometry.recalls() && layer.is_signed && layer.packed.slots > 0) {
        // Rows in front are signed and attended to, also where a head has free slots among them: what leaves goes
        // behind.
        const int64_t page = geometry.page_slots();
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
    const StateLayout& layout = geometry.state(layer.number);
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
    if (geometry.recalls() && layer.is_signed) { // nobody was evicted: the rows lie behind those that there are
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

} // namespace winnow::cache
