// A change of configuration: what must stay is compared, memory is taken, then every layer has an eviction pass under
// the new one.
#include "cache/calls/set_config.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include "cache/failures.hpp"
#include "cache/layer/eviction_pass.hpp"
#include "cache/layer/growth.hpp"

namespace winnow::cache {
namespace {

void expect_same(const char* what, const std::string& now, const std::string& then) {
    if (now == then) return;
    refuse(std::string("the cache's ") + what + " is " + now + " and would become " + then +
           ": formats, sink, residual window, center and whether an importance is kept have to stay");
}

// Of further packed segments all has to stay that says how many slots each has.
std::string lower_of(const Geometry& geometry) {
    std::string text;
    for (const LowerTier& tier : geometry.plan().lower)
        text.append(text.empty() ? "" : " and ")
            .append(tier.after > 0 ? "what is older than " + std::to_string(tier.after)
                                   : std::to_string(tier.share.part) + "/" + std::to_string(tier.share.whole))
            .append(" in ")
            .append(format_name(tier.k))
            .append(", ")
            .append(format_name(tier.v));
    return text.empty() ? "none" : text;
}

void check_lower(const Geometry& from, const Geometry& to) {
    expect_same("division among lower packed segments", lower_of(from), lower_of(to));
    if (!from.has_lower()) return;
    for (int64_t layer = 0; layer < to.layers(); ++layer) {
        const auto tokens = [&](const Geometry& of) { return of.plan().layer_tokens[static_cast<size_t>(layer)]; };
        if (tokens(from) != tokens(to) || from.covers_all(layer) != to.covers_all(layer))
            refuse("layer " + std::to_string(layer) + " has a budget of " + std::to_string(tokens(from)) +
                   " tokens and would have one of " + std::to_string(tokens(to)) +
                   ": with several packed segments it cannot change");
        // Slots beside the cells are as many as a cadence without a residual window.
        if (to.most_packed(layer) < from.most_packed(layer))
            refuse("cadence=" + std::to_string(to.cadence()) + ": with several packed segments for all cells and no " +
                   "residual window, expected at least the present cadence, " + std::to_string(from.cadence()));
    }
}

// What has to stay of recall: all of it, since hot slots and signatures are as large as it says.
std::string recall_of(const Config& config) { return config.recalls() ? to_string(config) : "off"; }

// Of a layer's first packed segment.
std::string formats_of(const Geometry& geometry, int64_t layer) {
    std::string text;
    for (const RowFormats& each : geometry.formats(layer, Part::packed)) {
        text.append(text.empty() ? "" : "; ").append(format_name(each.k)).append(" and ").append(format_name(each.v));
        if (each.heads == 0) continue;
        text += each.count == 1 ? " in KV head" : " in KV heads";
        for (int64_t head = 0; head < geometry.shape(layer).kv_heads; ++head)
            if (each.has(head)) text.append(" ").append(std::to_string(head));
    }
    return text;
}

std::string network_file_of(const Config& config) {
    return config.has("network_file") ? config.word("network_file") : "";
}

void check(const CacheState& cache, const Geometry& to) {
    const Geometry& from = *cache.geometry;
    expect_same("k", format_name(from.k()), format_name(to.k()));
    expect_same("v", format_name(from.v()), format_name(to.v()));
    for (int64_t layer = 0; layer < to.layers(); ++layer)
        expect_same(("format of layer " + std::to_string(layer)).c_str(), formats_of(from, layer),
                    formats_of(to, layer));
    expect_same("sink", std::to_string(from.sink()), std::to_string(to.sink()));
    expect_same("residual", std::to_string(from.residual()), std::to_string(to.residual()));
    const auto word_of = [](const Config& config) -> std::string { return config.center() ? "on" : "off"; };
    expect_same("center", word_of(from.config()), word_of(to.config()));
    check_lower(from, to);
    if (from.config().policy().has_network && to.config().policy().has_network) // which a cache has from its beginning
        expect_same("network_file", network_file_of(from.config()), network_file_of(to.config()));
    expect_same("recall", recall_of(from.config()), recall_of(to.config()));
    expect_same("importance", from.keeps_importance() ? "kept" : "not kept",
                to.keeps_importance() ? "kept" : "not kept");
    for (size_t i = 0; i < cache.sequences.size(); ++i) {
        const Sequence& sequence = cache.sequences[i];
        for (size_t j = 0; j < sequence.layers.size(); ++j) {
            const Layer& layer = sequence.layers[j];
            const auto layer_number = static_cast<int64_t>(j);
            int64_t elsewhere = layer.index.displaced(to.keep());
            // After a truncate the newest may lie in the packed segment, which has its eviction pass before the
            // residual window fills again.
            if (layer.most_in_packed > to.most_packed(layer_number))
                elsewhere += std::max<int64_t>(to.keep() - layer.index.newest(), 0);
            to.check_anchors(static_cast<int64_t>(i), layer_number, static_cast<int64_t>(sequence.anchors.size()),
                             elsewhere);
        }
    }
}

// Copies the small state of the heads. Lists of free slots stay behind: an eviction pass makes them anew.
void move_state(const StateLayout& from, Buffer& source, const StateLayout& to, Buffer& target) {
    const auto move = [&](const StateLayout::Range& a, const StateLayout::Range& b) {
        std::vector<std::byte> bytes(a.size);
        if (bytes.empty()) return;
        source.read(a.offset, bytes.data(), a.size);
        target.write(b.offset, bytes.data(), a.size);
    };
    move(from.head_state, to.head_state);
    move(from.output_sum, to.output_sum);
    move(from.k_mean, to.k_mean);
    move(from.v_mean, to.v_mean);
    move(from.positions, to.positions);
}

// Evicts until the packed segment of every head fits so many slots; false where too much is protected.
bool fit(CacheState& cache, Layer& layer, int64_t slots) {
    const int64_t budget = cache.geometry->plan().layer_tokens[static_cast<size_t>(layer.number)];
    for (int64_t less = 0; less < budget;) {
        evict(cache, layer, 0, 0, less);
        const int64_t live = compact(cache, layer);
        if (live <= slots) return true;
        less += live - slots;
    }
    return false;
}

// What a layer is going to have, taken before anything changes; none: what it has.
struct LayerChange : SegmentRows {
    Layer* layer = nullptr;
    std::unique_ptr<Buffer> state;
};

struct Change {
    std::vector<LayerChange> layers;
    std::optional<Scratch> scratch;
    uint64_t bytes = 0;
};

Change prepare(CacheState& cache, const Geometry& to) {
    Change change;
    int64_t scored = 0;
    for (Sequence& sequence : cache.sequences)
        for (Layer& layer : sequence.layers) {
            if (!layer.state) continue;
            LayerChange& layer_change = change.layers.emplace_back();
            layer_change.layer = &layer;
            int64_t reserved = 0, slots = layer.dense.slots;
            if (sequence.reserved > 0) {
                const int64_t resident = std::max(layer.most_resident(), sequence.reserved - to.sink());
                reserved = to.packed_slots(layer.number, resident, to.rows_beside(layer.index));
            }
            for (const Part part : to.packed_parts()) {
                const int64_t now = layer.rows(part).slots;
                int64_t its = to.has_lower() ? now : std::min(now, to.most_packed(layer.number));
                its = std::max(its, to.slots_of(layer.number, part, reserved));
                slots += its;
                if (its == now) continue;
                layer_change.rows(part) = make_packed_rows(cache, to, layer.number, part, its);
                change.bytes += counted_bytes_of(to, layer.number, part, its);
            }
            const StateLayout &state = cache.geometry->state(layer.number), &new_state = to.state(layer.number);
            if (state != new_state) {
                layer_change.state = make_state(cache.device, to, layer.number);
                change.bytes += new_state.size;
                move_state(state, *layer.state, new_state, *layer_change.state);
            }
            if (to.importance(layer.number).statistic != Statistic::none) scored = std::max(scored, slots);
        }
    if (cache.scratch.slots == scored && cache.geometry->chunk() == to.chunk()) return change;
    change.scratch = make_scratch(cache.device, to, scored);
    change.bytes += to.scratch_bytes(scored);
    return change;
}

void apply(CacheState& cache, const Geometry& from, LayerChange& layer_change) {
    const Geometry& to = *cache.geometry;
    Layer& layer = *layer_change.layer;
    const auto tokens = [&](const Geometry& of) { return of.plan().layer_tokens[static_cast<size_t>(layer.number)]; };
    const bool is_less = tokens(to) < tokens(from) || (from.covers_all(layer.number) && !to.covers_all(layer.number));
    const int64_t compacted = to.residual() == 0 ? compact(cache, layer) : 0;
    const int64_t slots = layer_change.packed.slots;
    const bool is_smaller = slots > 0 && slots < layer.packed.slots;
    if ((is_less || is_smaller) && layer.packed.slots > 0) { // smaller without being less: fewer slots are free-listed
        const int64_t most = is_smaller ? slots : layer.packed.slots;
        const int64_t live = is_less ? most + 1 : to.residual() == 0 ? compacted : compact(cache, layer);
        const bool fits = live <= most || fit(cache, layer, most);
        if (is_smaller && fits) {
            copy_slots(cache.device, to, layer.number, Part::packed, layer.packed, slots, layer_change.packed);
            cache.layer_bytes -= layer.bytes();
            layer.packed = std::move(layer_change.packed);
            cache.layer_bytes += layer.bytes();
        }
    }
    Growth reserved;
    for (const Part part : to.packed_parts()) {
        if (layer_change.rows(part).slots <= layer.rows(part).slots) continue;
        reserved.rows(part) = std::move(layer_change.rows(part));
        reserved.bytes += counted_bytes_of(to, layer.number, part, reserved.rows(part).slots);
    }
    commit(cache, layer, std::move(reserved));
}

} // namespace

void set_config(CacheState& cache, const std::string& text) {
    CacheRequest request = cache.geometry->request();
    request.config = text;
    auto to = std::make_unique<Geometry>(request, parse(text));
    check(cache, *to);
    Change change = prepare(cache, *to);
    cache.note_peak(change.bytes);
    const std::unique_ptr<Geometry> from = std::exchange(cache.geometry, std::move(to));
    if (change.scratch) cache.scratch = std::move(*change.scratch);
    // The states of all layers are exchanged before anything is launched, because a launch may fail, and a state that
    // has not the geometry's layout must not be left behind.
    for (LayerChange& layer_change : change.layers) {
        if (!layer_change.state) continue;
        cache.layer_bytes += layer_change.state->size() - layer_change.layer->state->size();
        layer_change.layer->state = std::move(layer_change.state);
    }
    const bool has_begun = true; // states are exchanged
    changing(
        cache.device,
        [&] {
            for (LayerChange& layer_change : change.layers) apply(cache, *from, layer_change);
        },
        has_begun);
}

} // namespace winnow::cache
