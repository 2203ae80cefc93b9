// The layout of a saved cache, written and read in the same order.
#include "cache/state/snapshot.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>

#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"
#include "cache/state/check_loaded.hpp"
#include "cache/state/checked_file.hpp"

namespace winnow::cache {
namespace {

constexpr std::array<char, 8> magic{'W', 'I', 'N', 'N', 'O', 'W', 'C', 'A'};
constexpr uint32_t file_version = 2;
constexpr uint32_t byte_order = 0x01020304;

struct Header {
    std::array<char, 8> magic = cache::magic;
    uint32_t version = file_version;
    uint32_t byte_order = cache::byte_order;
};

std::vector<int64_t> shape_of(const Geometry& geometry) {
    const Shape& shape = geometry.shape();
    const CacheRequest& request = geometry.request();
    std::vector<int64_t> numbers{shape.layers,  shape.kv_heads,  shape.head_size,       shape.v_head_size,
                                 shape.context, request.q_heads, request.max_sequences, request.cells};
    const Plan& plan = geometry.plan();
    numbers.insert(numbers.end(), plan.layer_tokens.begin(), plan.layer_tokens.end());
    return numbers;
}

std::vector<char> config_of(const Geometry& geometry) {
    const std::string text = without_folder(geometry.config());
    return {text.begin(), text.end()};
}

std::string text_of(uint64_t hash) {
    std::array<char, 17> text{"none"};
    if (hash != 0) std::snprintf(text.data(), text.size(), "%016llx", static_cast<unsigned long long>(hash));
    return text.data();
}

void check_resource(const char* name, uint64_t saved, uint64_t ours, const CheckedReader& file) {
    if (saved == ours) return;
    file.refuse_file(std::string("was saved by a cache with winnow_cache_desc.") + name + " of hash " + text_of(saved) +
                     ", and that of this cache has " + text_of(ours) +
                     ": create the cache with the one that was saved with, or read the prompt again");
}

// A layer's numbers beside its token index.
struct LayerNumbers {
    int64_t has_memory = 0;
    int64_t packed_slots = 0;
    int64_t most_in_packed = 0;
    int64_t free_listed = 0;
    int64_t outputs = 0;
    int64_t has_means = 0;
};

std::vector<Buffer*> buffers_of(const Layer& layer) {
    std::vector<Buffer*> buffers;
    for (const Rows* rows : {&layer.dense, &layer.packed, &layer.lower[0], &layer.lower[1]})
        for (Buffer* buffer : {rows->k.get(), rows->v.get(), rows->tokens.get(), rows->importance.get()})
            if (buffer != nullptr) buffers.push_back(buffer);
    if (layer.state) buffers.push_back(layer.state.get());
    return buffers;
}

void save_layer(CacheState& cache, Layer& layer, CheckedWriter& file) {
    const Fetched fetched(cache, layer);
    const TokenIndex::Saved index = layer.index.save();
    file.value(index.next);
    file.value(index.moved);
    file.values(index.ranges);
    file.values(index.cells);
    file.values(index.sinks);
    file.values(index.newest);
    file.value(LayerNumbers{layer.state != nullptr, layer.packed.slots, layer.most_in_packed, layer.free_listed,
                            layer.outputs, layer.has_means});
    for (const Part part : cache.geometry->packed_parts().subspan(1)) file.value(layer.rows(part).slots);
    std::vector<std::byte> bytes;
    for (Buffer* buffer : buffers_of(layer)) {
        bytes.resize(buffer->size());
        buffer->read(0, bytes.data(), bytes.size());
        file.bytes(bytes.data(), bytes.size());
    }
}

// loaded: bytes of the layers before it.
Layer load_layer(CacheState& cache, int64_t layer_number, uint64_t loaded, CheckedReader& file) {
    const Geometry& geometry = *cache.geometry;
    Layer layer(geometry, layer_number);
    TokenIndex::Saved index;
    index.next = file.value<int64_t>();
    index.moved = file.value<int64_t>();
    index.ranges = file.values<Range>();
    index.cells = file.values<int32_t>();
    index.sinks = file.values<int64_t>();
    index.newest = file.values<int64_t>();
    const int64_t limit = geometry.has_cells() ? most_seen : geometry.shape().context;
    const int64_t most_newest = geometry.residual() > 0 ? geometry.residual() : geometry.cadence();
    const auto numbers = file.value<LayerNumbers>();
    // A change of configuration may have left more; but not under recall, whose regions of a file have room for the
    // most.
    const int64_t most_slots = (geometry.recall() ? 1 : 2) * geometry.most_packed(layer_number);
    std::vector<int64_t> lower_slots;
    int64_t lower = 0;
    for (size_t i = 1; i < geometry.packed_parts().size(); ++i) {
        const auto slots = lower_slots.emplace_back(file.value<int64_t>());
        // Where a packed segment has slots, those above it have all of theirs.
        const int64_t above = i == 1 ? numbers.packed_slots : lower_slots[i - 2];
        const bool is_complete = above == geometry.capacity(layer_number, geometry.packed_parts()[i - 1]);
        if (slots < 0 || slots > most_slots || (slots > 0 && !is_complete))
            file.refuse_file("is damaged: a layer's numbers make no sense");
        lower += slots;
    }
    const auto is_within = [](int64_t value, int64_t most) { return value >= 0 && value <= most; };
    if (!layer.index.restore(index, most_newest, limit) || !is_within(numbers.has_memory, 1) ||
        !is_within(numbers.packed_slots, numbers.has_memory * most_slots) ||
        !is_within(lower, numbers.has_memory * most_slots - numbers.packed_slots) ||
        !is_within(numbers.most_in_packed, // removed tokens may count
                   numbers.has_memory * std::max(numbers.packed_slots + lower, geometry.most_packed(layer_number))) ||
        !is_within(numbers.free_listed, geometry.cadence()) || !is_within(numbers.outputs, no_end) ||
        !is_within(numbers.has_means, 1))
        file.refuse_file("is damaged: a layer's numbers make no sense");
    layer.most_in_packed = numbers.most_in_packed;
    layer.free_listed = numbers.free_listed;
    layer.outputs = numbers.outputs;
    layer.has_means = numbers.has_means != 0;
    if (numbers.has_memory == 0) return layer;
    if (bytes_of(geometry, layer_number, Part::packed, numbers.packed_slots) > file.left())
        file.refuse_file("is cut short");
    layer.dense = make_rows(cache.device, geometry, layer_number, Part::dense, geometry.dense_slots());
    layer.packed = make_own_rows(cache.device, geometry, layer_number, Part::packed, numbers.packed_slots);
    for (size_t i = 0; i < lower_slots.size(); ++i) {
        const Part part = geometry.packed_parts()[i + 1];
        if (bytes_of(geometry, layer_number, part, lower_slots[i]) > file.left()) file.refuse_file("is cut short");
        layer.rows(part) = make_rows(cache.device, geometry, layer_number, part, lower_slots[i]);
    }
    layer.state = cache.device.allocate(geometry.state().size);
    take_recall_memory(cache.device, geometry, layer);
    std::optional<Passing> until_moved; // rows of a file are in memory before
    if (cache.cold_file)
        until_moved.emplace(cache, loaded + layer.bytes() +
                                       bytes_of(geometry, layer_number, Part::packed, numbers.packed_slots));
    std::vector<std::byte> bytes;
    for (Buffer* buffer : buffers_of(layer)) {
        bytes.resize(buffer->size());
        file.bytes(bytes.data(), bytes.size());
        buffer->write(0, bytes.data(), bytes.size());
    }
    write_network(*layer.state, geometry, layer_number); // the cache's own
    move_to_file(cache, layer);
    return layer;
}

void check_header(const CacheState& cache, CheckedReader& file) {
    const Geometry& geometry = *cache.geometry;
    if (file.left() < sizeof(Header)) file.refuse_file("is not a saved cache");
    const auto header = file.value<Header>();
    if (header.magic != magic) file.refuse_file("is not a saved cache");
    if (header.byte_order != byte_order) file.refuse_file("was saved on a machine with another order of bytes");
    if (header.version != file_version)
        file.refuse_file("has version " + std::to_string(header.version) + ", expected " +
                         std::to_string(file_version));
    const std::vector<char> config = file.values<char>();
    if (config != config_of(geometry))
        file.refuse_file("was saved with " + quote({config.data(), config.size()}) + ", expected " +
                         quote(without_folder(geometry.config())));
    const auto saved = file.value<ResourceHashes>();
    const ResourceHashes& ours = cache.resources;
    check_resource("profile", saved.profile, ours.profile, file);
    check_resource("network", saved.network, ours.network, file);
    check_resource("codebooks", saved.codebooks, ours.codebooks, file);
    if (file.values<int64_t>() != shape_of(geometry))
        file.refuse_file("is of a cache with other layers, heads, sizes, context, sequences, cells or budgets");
}

// As reserve would have left it.
Scratch scratch_for(CacheState& cache, const std::vector<Sequence>& sequences) {
    const Geometry& geometry = *cache.geometry;
    int64_t slots = 0;
    for (const Sequence& sequence : sequences)
        for (size_t i = 0; i < sequence.layers.size(); ++i)
            if (geometry.importance(static_cast<int64_t>(i)).statistic != Statistic::none && sequence.layers[i].state)
                slots = std::max(slots, sequence.layers[i].slots());
    return make_scratch(cache.device, geometry, slots > cache.scratch.slots ? slots : 0);
}

} // namespace

void save(CacheState& cache, const std::string& path) {
    CheckedWriter file(path);
    file.value(Header{});
    file.values(config_of(*cache.geometry));
    file.value(cache.resources);
    file.values(shape_of(*cache.geometry));
    for (const uint64_t count : {cache.evictions, cache.eviction_passes, cache.steps}) file.value(count);
    for (Sequence& sequence : cache.sequences) {
        file.value(sequence.reserved);
        file.values(std::vector<int64_t>(sequence.anchors.begin(), sequence.anchors.end()));
        for (Layer& layer : sequence.layers) save_layer(cache, layer, file);
    }
    file.finish();
}

void load(CacheState& cache, const std::string& path) {
    CheckedReader file(path);
    check_header(cache, file);
    std::array<uint64_t, 3> counts{};
    for (uint64_t& count : counts) count = file.value<uint64_t>();
    std::vector<Sequence> sequences;
    uint64_t loaded = 0;
    for (size_t i = 0; i < cache.sequences.size(); ++i) {
        Sequence& sequence = sequences.emplace_back();
        sequence.reserved = file.value<int64_t>();
        for (const int64_t anchor : file.values<int64_t>()) sequence.anchors.insert(anchor);
        for (int64_t layer = 0; layer < cache.geometry->shape().layers; ++layer)
            loaded += sequence.layers.emplace_back(load_layer(cache, layer, loaded, file)).bytes();
    }
    file.finish();
    for (size_t i = 0; i < sequences.size(); ++i) {
        try {
            check_loaded(cache, static_cast<int64_t>(i), sequences[i]);
        } catch (const Error& error) {
            if (error.status() != WINNOW_ERROR_INVALID_ARGUMENT) throw;
            file.refuse_file(std::string("is damaged: ") + error.what());
        }
    }
    Scratch scratch = scratch_for(cache, sequences);
    int64_t reserved = 0;
    for (const Sequence& sequence : sequences) {
        reserved = std::max(reserved, sequence.reserved);
        for (const Layer& layer : sequence.layers)
            if (sequence.reserved > 0) take_cold_scratch(cache, layer.packed.slots);
    }
    ReservedMemory memory = reserved_memory(cache, reserved);

    const Geometry& geometry = *cache.geometry;
    PickCounts picks;
    for (const Sequence& sequence : cache.sequences) picks += pick_counts(geometry, sequence);
    const uint64_t replaced = cache.layer_bytes;
    cache.replace_sequences(sequences);
    cache.note_peak(replaced + geometry.scratch_bytes(scratch.slots) + memory.bytes());
    keep(cache, std::move(memory));
    if (scratch.slots > 0) cache.scratch = std::move(scratch);
    cache.picks += picks;
    cache.evictions = counts[0];
    cache.eviction_passes = counts[1];
    cache.steps = counts[2];
}

} // namespace winnow::cache
