// The layout of a saved cache, written and read in the same order.
#include "cache/state/snapshot.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <optional>
#include <span>

#include "cache/layer/growth.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"
#include "cache/state/check_loaded.hpp"
#include "cache/state/checked_stream.hpp"

namespace winnow::cache {
namespace {

constexpr std::array<char, 8> magic{'W', 'I', 'N', 'N', 'O', 'W', 'C', 'A'};
constexpr uint32_t file_version = 3;
constexpr uint32_t byte_order = 0x01020304;
// Bytes and numbers, of caches that need no more.
constexpr int64_t most_of_config = 1 << 16, most_of_shape = 1 << 17;

struct Header {
    std::array<char, 8> magic = cache::magic;
    uint32_t version = file_version;
    uint32_t byte_order = cache::byte_order;
};

std::vector<int64_t> shape_of(const Geometry& geometry) {
    std::vector<int64_t> numbers{geometry.layers(), geometry.context(), geometry.request().cells};
    for (int64_t layer = 0; layer < geometry.layers(); ++layer) {
        const LayerShape& shape = geometry.shape(layer);
        numbers.insert(numbers.end(), {shape.q_heads, shape.kv_heads, shape.head_size, shape.v_head_size,
                                       geometry.plan().layer_tokens[static_cast<size_t>(layer)]});
    }
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

void check_resource(const char* name, uint64_t saved, uint64_t ours, const CheckedReader& stream) {
    if (saved == ours) return;
    stream.refuse_stream(std::string("was saved by a cache whose resource \"") + name + "\" has the hash " +
                         text_of(saved) + ", and that of this cache has " + text_of(ours) +
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

void save_numbers(const CacheState& cache, const Layer& layer, CheckedWriter& stream) {
    const TokenIndex::Saved index = layer.index.save();
    stream.value(index.next);
    stream.value(index.moved);
    stream.values(index.ranges);
    stream.values(index.cells);
    stream.values(index.sinks);
    stream.values(index.newest);
    stream.value(LayerNumbers{layer.state != nullptr, layer.packed.slots, layer.most_in_packed, layer.free_listed,
                              layer.outputs, layer.has_means});
    for (const Part part : cache.geometry->packed_parts().subspan(1)) stream.value(layer.rows(part).slots);
}

void save_memory(CacheState& cache, Layer& layer, CheckedWriter& stream) {
    const Fetched fetched(cache, layer);
    std::vector<std::byte> bytes;
    for (Buffer* buffer : buffers_of(layer)) {
        bytes.resize(buffer->size());
        buffer->read(0, bytes.data(), bytes.size());
        if (buffer == layer.state.get()) clear_evictions(cache.geometry->state(layer.number), bytes);
        stream.bytes(bytes.data(), bytes.size());
    }
}

// What save_memory writes.
uint64_t memory_size(const CacheState& cache, const Layer& layer) {
    uint64_t size = 0;
    for (const Buffer* buffer : buffers_of(layer)) size += buffer->size();
    const bool is_fetched = layer.packed.slots > 0 && !layer.packed.k;
    return size + (is_fetched ? bytes_of(*cache.geometry, layer.number, Part::packed, layer.packed.slots) : 0);
}

// loaded: bytes of the layers before it.
Layer load_layer(CacheState& cache, int64_t layer_number, uint64_t loaded, CheckedReader& stream) {
    const Geometry& geometry = *cache.geometry;
    Layer layer(geometry, layer_number);
    TokenIndex::Saved index;
    index.next = stream.value<int64_t>();
    index.moved = stream.value<int64_t>();
    const int64_t limit = geometry.has_cells() ? most_seen : geometry.context();
    const int64_t most_newest = geometry.residual() > 0 ? geometry.residual() : geometry.cadence();
    index.ranges = stream.values<Range>(geometry.context());
    index.cells = stream.values<int32_t>(geometry.request().cells);
    index.sinks = stream.values<int64_t>(geometry.sink());
    index.newest = stream.values<int64_t>(most_newest);
    const auto numbers = stream.value<LayerNumbers>();
    // A change of configuration may have left more; but not under recall, whose regions of a file have room for the
    // most.
    const int64_t most_slots = (geometry.recalls() ? 1 : 2) * geometry.most_packed(layer_number);
    const std::span<const Part> parts = geometry.packed_parts();
    std::vector<int64_t> packed_slots{numbers.packed_slots};
    int64_t lower = 0;
    for (size_t i = 1; i < parts.size(); ++i) {
        const auto slots = packed_slots.emplace_back(stream.value<int64_t>());
        // Where a packed segment has slots, those above it have all of theirs.
        const bool is_complete = packed_slots[i - 1] == geometry.capacity(layer_number, parts[i - 1]);
        if (slots < 0 || slots > most_slots || (slots > 0 && !is_complete))
            stream.refuse_stream("is damaged: a layer's numbers make no sense");
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
        stream.refuse_stream("is damaged: a layer's numbers make no sense");
    layer.most_in_packed = numbers.most_in_packed;
    layer.free_listed = numbers.free_listed;
    layer.outputs = numbers.outputs;
    layer.has_means = numbers.has_means != 0;
    if (numbers.has_memory == 0) return layer;
    for (size_t i = 0; i < parts.size(); ++i)
        if (bytes_of(geometry, layer_number, parts[i], packed_slots[i]) > stream.left())
            stream.refuse_stream("is cut short");
    take_memory(cache.device, geometry, layer, packed_slots);
    std::optional<Passing> until_moved; // rows of a file are in memory before
    if (cache.cold_file)
        until_moved.emplace(cache, loaded + layer.bytes() +
                                       bytes_of(geometry, layer_number, Part::packed, numbers.packed_slots));
    std::vector<std::byte> bytes;
    for (Buffer* buffer : buffers_of(layer)) {
        bytes.resize(buffer->size());
        stream.bytes(bytes.data(), bytes.size());
        buffer->write(0, bytes.data(), bytes.size());
    }
    write_network(*layer.state, geometry, layer_number); // the cache's own
    move_to_file(cache, layer);
    return layer;
}

// A list that has to be as ours. One of another cache may be longer, so that the refusal can name it.
template <typename T>
std::vector<T> read_like(const std::vector<T>& ours, int64_t most, CheckedReader& stream) {
    return stream.values<T>(std::max(most, static_cast<int64_t>(ours.size())));
}

void check_header(const CacheState& cache, CheckedReader& stream) {
    const Geometry& geometry = *cache.geometry;
    if (stream.left() < sizeof(Header)) stream.refuse_stream("is not a saved cache");
    const auto header = stream.value<Header>();
    if (header.magic != magic) stream.refuse_stream("is not a saved cache");
    if (header.byte_order != byte_order) stream.refuse_stream("was saved on a machine with another order of bytes");
    if (header.version != file_version)
        stream.refuse_stream("has version " + std::to_string(header.version) + ", expected " +
                             std::to_string(file_version));
    const std::vector<char> our_config = config_of(geometry), config = read_like(our_config, most_of_config, stream);
    if (config != our_config)
        stream.refuse_stream("was saved with " + quote({config.data(), config.size()}) + ", expected " +
                             quote({our_config.data(), our_config.size()}));
    const auto saved = stream.value<ResourceHashes>();
    const ResourceHashes& ours = cache.resources;
    check_resource("profile", saved.profile, ours.profile, stream);
    check_resource("network", saved.network, ours.network, stream);
    check_resource("codebooks", saved.codebooks, ours.codebooks, stream);
    const std::vector<int64_t> our_shape = shape_of(geometry);
    if (read_like(our_shape, most_of_shape, stream) != our_shape)
        stream.refuse_stream("is of a cache with other layers, heads, sizes, context, cells or budgets");
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

// Sequence -1: all of them.
std::span<Sequence> sequences_of(CacheState& cache, int64_t sequence) {
    const std::span<Sequence> all(cache.sequences);
    return sequence < 0 ? all : all.subspan(static_cast<size_t>(sequence), 1);
}

// with_memory: of a layer, behind its numbers.
template <class WithMemory>
void write_to(CheckedWriter& stream, CacheState& cache, int64_t sequence_number, WithMemory with_memory) {
    const std::span<Sequence> sequences = sequences_of(cache, sequence_number);
    stream.value(Header{});
    stream.values(config_of(*cache.geometry));
    stream.value(cache.resources);
    stream.values(shape_of(*cache.geometry));
    stream.value(static_cast<uint64_t>(sequences.size()));
    for (Sequence& sequence : sequences) {
        stream.value(sequence.reserved);
        stream.values(std::vector<int64_t>(sequence.anchors.begin(), sequence.anchors.end()));
        for (Layer& layer : sequence.layers) {
            save_numbers(cache, layer, stream);
            with_memory(layer);
        }
    }
    stream.finish();
}

} // namespace

void save(CacheState& cache, const CacheSaving& into) {
    CheckedWriter stream(into);
    write_to(stream, cache, into.sequence, [&](Layer& layer) { save_memory(cache, layer, stream); });
}

uint64_t saved_size(CacheState& cache, int64_t sequence) {
    CheckedWriter stream;
    write_to(stream, cache, sequence, [&](const Layer& layer) { stream.leave_out(memory_size(cache, layer)); });
    return stream.size();
}

void load(CacheState& cache, const CacheLoading& from) {
    CheckedReader stream(from);
    const std::span<Sequence> replaced = sequences_of(cache, from.sequence);
    check_header(cache, stream);
    if (const auto count = stream.value<uint64_t>(); count != replaced.size())
        stream.refuse_stream("has " + std::to_string(count) + " sequences, expected " +
                             std::to_string(replaced.size()));
    const Geometry& geometry = *cache.geometry;
    const int64_t token_ids = geometry.has_cells() ? geometry.request().cells : geometry.context();
    std::vector<Sequence> sequences;
    uint64_t loaded = 0;
    for (size_t i = 0; i < replaced.size(); ++i) {
        Sequence& sequence = sequences.emplace_back();
        sequence.reserved = stream.value<int64_t>();
        for (const int64_t anchor : stream.values<int64_t>(token_ids)) sequence.anchors.insert(anchor);
        for (int64_t layer = 0; layer < geometry.layers(); ++layer)
            loaded += sequence.layers.emplace_back(load_layer(cache, layer, loaded, stream)).bytes();
    }
    stream.finish();
    for (size_t i = 0; i < sequences.size(); ++i) {
        try {
            check_loaded(cache, std::max<int64_t>(from.sequence, 0) + static_cast<int64_t>(i), sequences[i]);
        } catch (const Error& error) {
            if (error.status() != WINNOW_ERROR_INVALID_ARGUMENT) throw;
            stream.refuse_stream(std::string("is damaged: ") + error.what());
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

    uint64_t evicted = 0, bytes = 0;
    PickCounts picks;
    for (const Sequence& sequence : replaced) {
        for (const Layer& layer : sequence.layers) evicted += layer.evictions(geometry);
        picks += pick_counts(geometry, sequence);
        bytes += sequence.bytes();
    }
    std::swap_ranges(sequences.begin(), sequences.end(), replaced.begin());
    cache.layer_bytes += loaded - bytes;
    cache.note_peak(bytes + geometry.scratch_bytes(scratch.slots) + memory.bytes());
    keep(cache, std::move(memory));
    if (scratch.slots > 0) cache.scratch = std::move(scratch);
    cache.picks += picks;
    cache.evictions += evicted;
}

} // namespace winnow::cache
