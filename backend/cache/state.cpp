// The memory of layers as it grows and shrinks, and judgements.
#include "cache/state.hpp"

#include <algorithm>

#include "cache/pressure.hpp"

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
    for (int64_t i = 0; i < geometry->request().max_sequences; ++i) sequences.push_back(new_sequence());
}

Sequence CacheState::new_sequence() const {
    Sequence sequence;
    for (int64_t layer = 0; layer < geometry->shape().layers; ++layer) sequence.layers.emplace_back(*geometry);
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

Growth grow(CacheState& cache, const Layer& layer, int64_t number, int64_t held, bool scores, int64_t scratch) {
    const Geometry& geometry = *cache.geometry;
    Growth growth;
    growth.is_new = !layer.state;
    if (growth.is_new) {
        growth.dense = make_rows(cache.device, geometry, Part::dense, geometry.dense_slots());
        growth.state = cache.device.allocate(geometry.state().size);
        growth.bytes += bytes_of(geometry, Part::dense, geometry.dense_slots()) + geometry.state().size;
    }
    if (geometry.dense_slots() == 0) held = std::max<int64_t>(held, 1); // an attention has at least one store
    const int64_t body = geometry.body_slots(number, held, layer.record.sinks_lost());
    if (body > layer.body.slots) {
        growth.body = make_rows(cache.device, geometry, Part::body, body);
        growth.bytes += bytes_of(geometry, Part::body, body);
    }
    const int64_t slots = geometry.dense_slots() + std::max(body, layer.body.slots);
    scores = scores || geometry.importance(number).statistic != Statistic::none;
    if (scores && slots > std::max(scratch, cache.scratch.slots)) {
        growth.scratch = make_scratch(cache.device, geometry, slots);
        growth.bytes += geometry.scratch_bytes(slots);
    }
    return growth;
}

std::vector<Store> stores_after(const Geometry& geometry, const Layer& layer, const Growth& growth) {
    Layer shape(geometry);
    shape.dense.slots = growth.is_new ? growth.dense.slots : layer.dense.slots;
    shape.body.slots = growth.body.slots > 0 ? growth.body.slots : layer.body.slots;
    return shape.stores(geometry);
}

void commit(CacheState& cache, Layer& layer, Growth growth) {
    if (growth.bytes == 0) return;
    const Geometry& geometry = *cache.geometry;
    SlotEdit clear;
    clear.end = 1; // a zeroed slot map is full of token 0
    if (growth.dense.slots > 0)
        clear.stores.push_back(view_of(geometry, Part::dense, growth.dense, growth.dense.slots));
    if (growth.body.slots > 0) {
        const Store to = view_of(geometry, Part::body, growth.body, growth.body.slots);
        if (layer.body.slots > 0)
            cache.device.launch(
                SlotCopy{.from = view_of(geometry, Part::body, layer.body, layer.body.slots), .to = to});
        else
            clear.stores.push_back(to);
    }
    if (!clear.stores.empty()) cache.device.launch(clear);
    cache.note_peak(growth.bytes);
    cache.layer_bytes -= layer.bytes();
    if (growth.is_new) {
        layer.dense = std::move(growth.dense);
        layer.state = std::move(growth.state);
    }
    if (growth.body.slots > 0) layer.body = std::move(growth.body);
    cache.layer_bytes += layer.bytes();
    if (growth.scratch.slots > 0) cache.scratch = std::move(growth.scratch);
}

void flush(CacheState& cache, Layer& layer, int64_t number, int64_t leaving, int64_t incoming, int64_t less,
           Demanded demanded) {
    const Geometry& geometry = *cache.geometry;
    const Shape& shape = geometry.shape();
    const Record& record = layer.record;
    SlotFlush args;
    args.description = geometry.describe(number, cache.pressure_now());
    if (geometry.has_cells()) { // appending has no end there, but no more than the cells are alive
        args.description.context = no_end;
        if (geometry.covers_all(number)) {
            args.description.budget = std::max(args.description.budget, geometry.request().cells);
            args.description.context = record.next() + geometry.request().cells - record.tokens();
        }
    }
    // Without a ring, listed slots are a promise that only a head itself can keep: which sinks' slots are empty there,
    // so that its budget would allow it more than the body holds, nobody else knows.
    int64_t listed = 0;
    if (geometry.ring() == 0 && demanded == Demanded::by_budget)
        listed = geometry.has_cells() ? incoming : std::min(incoming, shape.context - record.next());
    args.wanted_free = listed;
    args.description.budget -= less;
    if (demanded == Demanded::by_room) {
        args.description.budget = anchor_flag; // no layer holds more
        args.description.trigger = {1, 1};
    }
    args.dense = layer.dense_store(geometry);
    args.body = layer.body_store(geometry);
    args.seen = record.next();
    args.incoming = incoming;
    args.k_norm = geometry.k_norm();
    args.v_norm = geometry.v_norm();
    args.ring_first = geometry.sink();
    if (geometry.ring() > 0) {
        args.ring_count = geometry.ring();
        args.leaving_offset = record.first_newest() % geometry.ring();
        args.leaving_count = leaving;
        args.set_means = geometry.config().center() && !layer.has_means && leaving > 0;
    }
    const StateLayout& layout = geometry.state();
    if (layout.output_sum.size > 0) { // also under a policy that does not add to it: another one may follow
        args.output_sum =
            state_tensor(Type::f32, layout.output_sum, layer.state.get(), shape.kv_heads, shape.v_head_size);
        args.outputs = layer.outputs;
    }
    args.positions = state_tensor(Type::i32, layout.positions, layer.state.get(), 1, geometry.request().cells);
    args.free_slots =
        state_tensor(Type::i32, layout.free_slots, layer.state.get(), shape.kv_heads, most_listed(geometry.config()));
    args.head_state = layer.head_state(geometry);
    cache.device.launch(args);

    ++cache.flushes;
    layer.outputs = 0;
    layer.has_means = layer.has_means || args.set_means;
    const int64_t moved = geometry.ring() > 0 ? leaving : record.newest();
    layer.most_in_body = std::min(layer.most_in_body + moved, geometry.most_body(number));
    layer.record.leave(moved);
    layer.listed = listed;
}

int64_t gather(CacheState& cache, Layer& layer) {
    const Geometry& geometry = *cache.geometry;
    if (geometry.ring() == 0) {
        layer.record.leave_all();
        layer.listed = 0;
    }
    if (layer.body.slots == 0) return 0;
    cache.device.launch(SlotCompact{.store = layer.body_store(geometry), .head_state = layer.head_state(geometry)});
    layer.most_in_body = 0;
    for (const HeadState& head : layer.read_head_state(geometry))
        layer.most_in_body = std::max<int64_t>(layer.most_in_body, head.live);
    return layer.most_in_body;
}

void compact(CacheState& cache, Sequence& sequence, int64_t number) {
    const Geometry& geometry = *cache.geometry;
    Layer& layer = sequence.layers[static_cast<size_t>(number)];
    const int64_t live = gather(cache, layer);
    const int64_t reserved = std::max<int64_t>(sequence.reserved - geometry.sink(), 0);
    const int64_t held = std::max({layer.held(), live + geometry.keep(), reserved});
    int64_t slots = 0;
    if (live > 0 || reserved > 0 || layer.record.newest() > geometry.keep())
        slots = std::max(live, geometry.body_slots(number, held, layer.record.sinks_lost()));
    if (geometry.dense_slots() == 0) slots = std::max(slots, geometry.body_slots(number, 1, 0)); // as in grow
    if (slots >= layer.body.slots) return;
    Rows smaller;
    try {
        smaller = make_rows(cache.device, geometry, Part::body, slots);
    } catch (const Error& error) {
        if (error.status() != WINNOW_ERROR_OUT_OF_MEMORY) throw;
        return;
    }
    if (slots > 0)
        cache.device.launch(SlotCopy{.from = view_of(geometry, Part::body, layer.body, slots),
                                     .to = view_of(geometry, Part::body, smaller, slots)});
    cache.note_peak(bytes_of(geometry, Part::body, slots));
    cache.layer_bytes -= layer.bytes();
    layer.body = std::move(smaller);
    cache.layer_bytes += layer.bytes();
}

void drop(CacheState& cache, Sequence& sequence) {
    uint64_t evictions = 0;
    for (const Layer& layer : sequence.layers)
        for (const HeadState& head : layer.read_head_state(*cache.geometry))
            evictions += static_cast<uint64_t>(head.given_up);
    cache.layer_bytes -= sequence.bytes();
    sequence.layers = cache.new_sequence().layers;
    cache.evictions += evictions;
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

void edit(CacheState& cache, const Layer& layer, SlotEdit::Action action, Range numbers, int64_t delta) {
    SlotEdit args;
    args.action = action;
    args.stores = layer.stores(*cache.geometry);
    args.begin = numbers.begin;
    args.end = std::min<int64_t>(numbers.end, anchor_flag);
    args.delta = delta;
    if (!args.stores.empty() && args.begin < args.end) cache.device.launch(args);
}

void mark_anchors(CacheState& cache, const Layer& layer, const std::set<int64_t>& anchors, Range numbers) {
    for (auto it = anchors.lower_bound(numbers.begin); it != anchors.end() && *it < numbers.end;) {
        Range together{*it, *it};
        for (; it != anchors.end() && *it == together.end && *it < numbers.end; ++it) ++together.end;
        edit(cache, layer, SlotEdit::Action::anchor, together);
    }
}

} // namespace winnow::cache
