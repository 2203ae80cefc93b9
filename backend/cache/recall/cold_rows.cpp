// Rows between a region of the file, where pages lie one after another, and buffers, where heads do.
#include "cache/recall/cold_rows.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "cache/recall/recall.hpp"
#include "device/clock.hpp"

namespace winnow::cache {
namespace {

constexpr uint64_t most_at_once = 1 << 20; // bytes of one read or write
constexpr uint64_t nearby = 4096;          // bytes between two reads that are then one: what a call costs
constexpr uint64_t page_reads = 256 << 10; // bytes of the pages that are asked for together
constexpr size_t misses_of_a_thread = 64;  // what is worth another thread

// The places of rows in a region.
struct Places {
    Places(const Geometry& geometry, int64_t layer)
        : heads(static_cast<uint64_t>(geometry.shape(layer).kv_heads)),
          page_slots(static_cast<uint64_t>(geometry.page_slots())),
          k_row(row_bytes(geometry.k(), geometry.shape(layer).head_size)),
          v_row(row_bytes(geometry.v(), geometry.shape(layer).v_head_size)) {}

    uint64_t heads, page_slots, k_row, v_row;
    uint64_t of_head() const { return page_slots * (k_row + v_row); } // bytes of a page
    uint64_t of_page() const { return heads * of_head(); }
    uint64_t pages(int64_t slots) const { return (static_cast<uint64_t>(slots) + page_slots - 1) / page_slots; }
    uint64_t pages_at_once() const { return std::max<uint64_t>(most_at_once / of_page(), 1); }
};

enum class Direction { to_buffers, from_buffers };

// Copies the rows of pages [first, first + count), of which `bytes` has the file's, to or from buffers of the packed
// segment's slots from `first_slot` on.
void move_rows(const Places& at, const Rows& buffers, int64_t first_slot, uint64_t first, uint64_t count,
               std::span<std::byte> bytes, Direction direction) {
    const auto slots = static_cast<uint64_t>(buffers.slots);
    const uint64_t begin = first * at.page_slots - static_cast<uint64_t>(first_slot);
    const uint64_t rows = std::min(count * at.page_slots, slots - begin);
    std::vector<std::byte> together;
    for (const bool are_keys : {true, false}) {
        const uint64_t row = are_keys ? at.k_row : at.v_row, page = at.page_slots * row;
        Buffer& buffer = are_keys ? *buffers.k : *buffers.v;
        together.resize(static_cast<size_t>(count * page));
        for (uint64_t head = 0; head < at.heads; ++head) {
            const uint64_t place = (head * slots + begin) * row;
            if (direction == Direction::from_buffers) buffer.read(place, together.data(), rows * row);
            for (uint64_t i = 0; i < count; ++i) {
                std::byte* const in_file =
                    &bytes[i * at.of_page() + head * at.of_head() + (are_keys ? 0 : at.page_slots * at.k_row)];
                if (direction == Direction::to_buffers)
                    std::memcpy(&together[i * page], in_file, page);
                else
                    std::memcpy(in_file, &together[i * page], page);
            }
            if (direction == Direction::to_buffers) buffer.write(place, together.data(), rows * row);
        }
    }
}

// What reads took.
struct ReadTime {
    uint64_t bytes = 0, wait_ns = 0;
};

void read(const ColdRegion& region, std::span<const ColdRead> reads, ReadTime& time) {
    const uint64_t begin_ns = monotonic_ns();
    region.read(reads);
    time.wait_ns += monotonic_ns() - begin_ns;
    for (const ColdRead& each : reads) time.bytes += each.to.size();
}

// Reads, and counts in the layer what it took.
void read(Layer& layer, std::span<const ColdRead> reads) {
    ReadTime time;
    read(*layer.cold.region, reads, time);
    layer.cold.bytes_read += time.bytes;
    layer.cold.wait_ns += time.wait_ns;
}

// Pages [first, end).
void read_pages(const Geometry& geometry, Layer& layer, uint64_t first, uint64_t end) {
    const Places at(geometry, layer.number);
    std::vector<std::byte> bytes;
    for (uint64_t count = 0; first < end; first += count) {
        count = std::min(at.pages_at_once(), end - first);
        bytes.resize(count * at.of_page());
        const ColdRead all{first * at.of_page(), bytes};
        read(layer, {&all, 1});
        move_rows(at, layer.packed, layer.packed_first, first, count, bytes, Direction::to_buffers);
    }
}

void write_pages(const Geometry& geometry, const Layer& layer, ColdRegion& region, uint64_t first, uint64_t end) {
    const Places at(geometry, layer.number);
    std::vector<std::byte> bytes;
    for (uint64_t count = 0; first < end; first += count) {
        count = std::min(at.pages_at_once(), end - first);
        bytes.assign(count * at.of_page(), std::byte{0});
        move_rows(at, layer.packed, layer.packed_first, first, count, bytes, Direction::from_buffers);
        region.write(first * at.of_page(), bytes);
    }
}

int64_t page_slots_of(const CacheState& cache) { return cache.geometry->page_slots(); }

// One past the last slot that some head has a row in.
int64_t end_of_rows(std::span<const int32_t> entries, int64_t slots) {
    int64_t end = 0;
    for (size_t i = 0; i < entries.size(); ++i)
        if (entries[i] >= 0) end = std::max(end, static_cast<int64_t>(i) % slots + 1);
    return end;
}

// What rows leave at once, behind those that are in their page.
int64_t end_slots(const Geometry& geometry) { return geometry.page_slots() - 1 + geometry.residual(); }

uint64_t page_scratch_bytes(const Geometry& geometry) {
    return std::max(page_reads, geometry.most_bytes([&](int64_t layer) { return Places(geometry, layer).of_head(); }));
}

} // namespace

uint64_t cold_scratch_bytes(const Geometry& geometry, int64_t slots) {
    if (slots == 0 || !geometry.config().recall_folder()) return 0;
    return 4 * static_cast<uint64_t>(slots) + page_scratch_bytes(geometry) +
           shared_rows_bytes(geometry, end_slots(geometry));
}

void take_cold_scratch(CacheState& cache, int64_t slots, uint64_t beside) {
    if (!cache.cold_file || slots == 0) return;
    const Passing taken(cache, beside);
    const Geometry& geometry = *cache.geometry;
    ColdScratch& scratch = cache.cold_scratch;
    if (scratch.end.slots == 0) scratch.end = make_shared_rows(cache.device, geometry, end_slots(geometry));
    scratch.read.resize(page_scratch_bytes(geometry));
    take_slot_map(cache, 4 * static_cast<uint64_t>(slots));
    cache.note_peak(0);
}

void take_slot_map(CacheState& cache, uint64_t size) {
    ColdScratch& scratch = cache.cold_scratch;
    if (scratch.map && scratch.map->size() >= size) return;
    auto larger = cache.device.allocate(size); // what there is stays, if this fails
    cache.note_peak(larger->size());
    scratch.map = std::move(larger);
    scratch.slots = 0;
}

uint64_t cold_file_bytes(const Geometry& geometry, int64_t layer, int64_t slots) {
    const Places at(geometry, layer);
    return at.pages(slots) * at.of_page();
}

std::shared_ptr<ColdFile> open_cold_file(const Geometry& geometry, const Log& log) {
    const std::optional<std::string> folder = geometry.config().recall_folder();
    if (!folder) return nullptr;
    const uint64_t of_layer = geometry.most_bytes(
        [&](int64_t layer) { return cold_file_bytes(geometry, layer, geometry.most_packed(layer)); });
    return std::make_shared<ColdFile>(*folder, of_layer, log);
}

Fetched::Fetched(CacheState& cache, Layer& layer) : Fetched(cache, layer, 0, layer.packed.slots) {}

Fetched::Fetched(EndOf, CacheState& cache, Layer& layer, int64_t rows)
    : Fetched(cache, layer, layer.in_front / page_slots_of(cache) * page_slots_of(cache),
              layer.in_front % page_slots_of(cache) + std::max<int64_t>(rows, 1), &cache.cold_scratch.end) {}

Fetched::Fetched(CacheState& cache, Layer& layer, int64_t first, int64_t slots, Rows* scratch)
    : cache_(cache), layer_(layer), slots_(layer.packed.slots) {
    if (!cache.cold_file || layer.packed.k || layer.packed.slots == 0) return;
    const Geometry& geometry = *cache.geometry;
    const Places at(geometry, layer.number);
    const bool takes_scratch = scratch != nullptr && slots <= scratch->slots;
    before_ =
        layer.cold.map.entries(geometry.shape(layer.number).kv_heads, takes_scratch ? scratch->slots : slots, first);
    if (takes_scratch) {
        layer.packed = std::move(*scratch);
        scratch_ = scratch;
    } else {
        layer.packed = make_rows(cache.device, geometry, layer.number, Part::packed, slots);
        memory_.emplace(cache, bytes_of(geometry, layer.number, Part::packed, slots));
    }
    layer.packed_first = first;
    is_owner_ = true;
    try {
        layer.packed.tokens->write(0, before_.data(), 4 * before_.size());
        const int64_t end = std::max(layer.cold.map.end(), first);
        read_pages(geometry, layer, static_cast<uint64_t>(first) / at.page_slots, at.pages(end));
    } catch (...) {
        give_back();
        throw;
    }
}

Fetched::~Fetched() {
    if (is_owner_) give_back();
}

void Fetched::give_back() {
    if (scratch_ != nullptr) *scratch_ = std::move(layer_.packed);
    layer_.packed = rows_elsewhere(slots_);
    layer_.packed_first = 0;
}

void Fetched::store() {
    if (!is_owner_) return;
    const Geometry& geometry = *cache_.geometry;
    const Places at(geometry, layer_.number);
    const int64_t slots = layer_.packed.slots;
    std::vector<int32_t> now = layer_.map_of(geometry, layer_.packed);
    bool has_moved = has_changed_rows_ || layer_.cold.is_moved;
    int64_t first = slots, end = 0; // slots that have rows now and had none
    for (size_t i = 0; i < now.size(); ++i) {
        if (now[i] < 0) continue;
        const int64_t slot = static_cast<int64_t>(i) % slots;
        if (before_[i] >= 0) {
            has_moved |= (before_[i] & ~anchor_flag) != (now[i] & ~anchor_flag);
            continue;
        }
        first = std::min(first, slot);
        end = std::max(end, slot + 1);
    }
    if (has_moved) {
        auto region = std::make_shared<ColdRegion>(cache_.cold_file);
        region->reserve(cold_file_bytes(geometry, layer_.number, slots));
        write_pages(geometry, layer_, *region, 0, at.pages(end_of_rows(now, slots)));
        layer_.cold.region = std::move(region);
        layer_.cold.is_moved = false;
    } else if (first < end) {
        const int64_t from = layer_.packed_first;
        write_pages(geometry, layer_, *layer_.cold.region, static_cast<uint64_t>(from + first) / at.page_slots,
                    at.pages(from + end));
    }
    layer_.cold.map.set(now, geometry.shape(layer_.number).kv_heads, layer_.packed_first);
    before_ = std::move(now);
    has_changed_rows_ = false;
}

Stretches::Stretches(CacheState& cache, Layer& layer, int64_t end, int64_t at_once)
    : cache_(cache), layer_(layer), end_(end), at_once_(at_once) {
    if (!cache.cold_file || layer.packed.k || end == 0) return;
    const Geometry& geometry = *cache.geometry;
    const int64_t most = slots_from(0);
    rows_ = make_rows(cache.device, geometry, layer.number, Part::packed, most);
    bytes_.reserve(cold_file_bytes(geometry, layer.number, most));
    memory_.emplace(cache, bytes_of(geometry, layer.number, Part::packed, most) + bytes_.capacity());
}

int64_t Stretches::slots_from(int64_t first) const { return std::min(at_once_, end_ - first); }

bool Stretches::next() {
    first_ += slots_;
    if (first_ == end_) return false;
    slots_ = slots_from(first_);
    const Geometry& geometry = *cache_.geometry;
    if (!memory_) {
        segment_ = slots_of(layer_.packed_segment(geometry), first_, slots_);
        return true;
    }
    if (read_ != first_) read(first_);
    const Places at(geometry, layer_.number);
    const std::vector<int32_t> map =
        layer_.cold.map.entries(geometry.shape(layer_.number).kv_heads, rows_.slots, first_);
    rows_.tokens->write(0, map.data(), 4 * map.size());
    move_rows(at, rows_, first_, static_cast<uint64_t>(first_) / at.page_slots, at.pages(slots_), bytes_,
              Direction::to_buffers);
    segment_ = layer_.packed_segment(geometry, rows_, slots_);
    return true;
}

void Stretches::read_ahead() {
    if (!memory_ || first_ + slots_ == end_) return;
    cache_.device.flush();
    read(first_ + slots_);
}

void Stretches::read(int64_t first) {
    const Geometry& geometry = *cache_.geometry;
    bytes_.resize(cold_file_bytes(geometry, layer_.number, slots_from(first)));
    const ColdRead all{cold_file_bytes(geometry, layer_.number, first), bytes_};
    cache::read(layer_, {&all, 1});
    read_ = first;
}

void move_to_file(CacheState& cache, Layer& layer) {
    if (!cache.cold_file || !layer.packed.k) return;
    const Geometry& geometry = *cache.geometry;
    const int64_t slots = layer.packed.slots;
    const std::vector<int32_t> entries = layer.map_of(geometry, layer.packed);
    layer.cold.region = std::make_shared<ColdRegion>(cache.cold_file);
    layer.cold.region->reserve(cold_file_bytes(geometry, layer.number, slots));
    write_pages(geometry, layer, *layer.cold.region, 0,
                Places(geometry, layer.number).pages(end_of_rows(entries, slots)));
    layer.cold.map.set(entries, geometry.shape(layer.number).kv_heads);
    layer.packed = rows_elsewhere(slots);
}

void copy_cold_rows(CacheState& cache, const Layer& from, Layer& to) {
    if (!from.cold.region) return;
    const Geometry& geometry = *cache.geometry;
    to.cold.map = from.cold.map;
    to.cold.region = std::make_shared<ColdRegion>(cache.cold_file);
    to.cold.region->reserve(from.cold.region->reserved());
    std::vector<std::byte> bytes;
    const uint64_t end = cold_file_bytes(geometry, from.number, from.cold.map.end());
    for (uint64_t offset = 0; offset < end; offset += bytes.size()) {
        bytes.resize(std::min(most_at_once, end - offset));
        const ColdRead all{offset, bytes};
        from.cold.region->read({&all, 1});
        to.cold.region->write(offset, bytes);
    }
}

std::vector<int32_t> frame_pages(const Geometry& geometry, const Layer& layer) {
    const StateLayout::Range& part = geometry.recall(layer.number).frame_pages;
    std::vector<int32_t> pages(static_cast<size_t>(part.size / 4));
    layer.index_memory->read(part.offset, pages.data(), part.size);
    return pages;
}

namespace {

// A page that a head picked and has in no frame but this one.
struct Miss {
    uint64_t offset, head, frame; // offset: of its rows in the region
};

// In the order of the file.
std::vector<Miss> misses_of(const Places& at, uint64_t frames, std::span<const int32_t> before,
                            std::span<const int32_t> now) {
    std::vector<Miss> misses;
    for (uint64_t head = 0; head < at.heads; ++head) {
        const auto of_others = static_cast<std::ptrdiff_t>(misses.size());
        for (uint64_t frame = 0; frame < frames; ++frame) {
            const int32_t page = now[head * frames + frame];
            if (page >= 0 && page != before[head * frames + frame])
                misses.push_back({static_cast<uint64_t>(page) * at.of_page() + head * at.of_head(), head, frame});
        }
        // Pages of a head come in their order into frames in their order.
        std::inplace_merge(misses.begin(), misses.begin() + of_others, misses.end(),
                           [](const Miss& a, const Miss& b) { return a.offset < b.offset; });
    }
    return misses;
}

// What one thread brings: reads of the file into scratch memory of its own, and from there the rows into hot slots that
// no other thread writes.
struct Share {
    const ColdRegion& region;
    const Rows& hot;
    uint64_t frames;
    std::span<const Miss> misses;
    std::span<std::byte> scratch;
    ReadTime time{};

    void bring(const Places& at);
};

void Share::bring(const Places& at) {
    const uint64_t slots = frames * at.page_slots, k_page = at.page_slots * at.k_row, v_page = at.page_slots * at.v_row;
    std::vector<ColdRead> reads;
    for (size_t first = 0, end = 0; first < misses.size(); first = end) {
        // Reads of what lies near each other are one; as many as there is room for.
        reads.clear();
        uint64_t size = 0, last = 0; // last: where the last read ends
        for (; end < misses.size(); ++end) {
            const Miss& miss = misses[end];
            const bool joins = !reads.empty() && miss.offset <= last + nearby;
            const uint64_t more = joins ? miss.offset + at.of_head() - last : at.of_head();
            if (size + more > scratch.size()) break;
            if (joins)
                reads.back().to = std::span(reads.back().to.data(), reads.back().to.size() + more);
            else
                reads.push_back({miss.offset, scratch.subspan(size, more)});
            size += more;
            last = miss.offset + at.of_head();
        }
        read(region, reads, time);
        auto in = reads.begin();
        for (size_t i = first; i < end; ++i) {
            const Miss& miss = misses[i];
            while (miss.offset >= in->offset + in->to.size()) ++in;
            const std::byte* const rows = &in->to[miss.offset - in->offset];
            const uint64_t slot = miss.head * slots + miss.frame * at.page_slots;
            hot.k->write(slot * at.k_row, rows, k_page);
            hot.v->write(slot * at.v_row, rows + k_page, v_page);
        }
    }
}

} // namespace

void bring_pages(CacheState& cache, Layer& layer, const std::vector<int32_t>& before) {
    const Geometry& geometry = *cache.geometry;
    const Places at(geometry, layer.number);
    const auto frames = static_cast<uint64_t>(geometry.recall(layer.number).frames);
    const std::vector<int32_t> now = frame_pages(geometry, layer); // and the device has nothing to do any more
    const std::vector<Miss> misses = misses_of(at, frames, before, now);
    const std::span<std::byte> scratch = cache.cold_scratch.read;
    const size_t count = std::clamp<size_t>(std::min(misses.size() / misses_of_a_thread, scratch.size() / at.of_head()),
                                            1, cache.device.host_threads());
    std::vector<Share> shares;
    for (size_t i = 0; i < count; ++i) {
        const size_t first = misses.size() * i / count, end = misses.size() * (i + 1) / count;
        shares.push_back({*layer.cold.region, layer.hot, frames, std::span(misses).subspan(first, end - first),
                          scratch.subspan(scratch.size() / count * i, scratch.size() / count)});
    }
    const auto bring = [&](uint32_t i) { shares[i].bring(at); };
    if (count == 1)
        bring(0);
    else
        cache.device.run_on_host(static_cast<uint32_t>(count), bring);
    uint64_t waited = 0;
    for (const Share& share : shares) {
        layer.cold.bytes_read += share.time.bytes;
        waited = std::max(waited, share.time.wait_ns);
    }
    layer.cold.wait_ns += waited;
}

LayerBackup::LayerBackup(CacheState& cache, Layer& layer)
    : cache_(cache), layer_(layer), index_(layer.index), map_(layer.cold.map), region_(layer.cold.region),
      most_in_packed_(layer.most_in_packed), outputs_(layer.outputs), has_means_(layer.has_means),
      has_memory_(layer.state != nullptr), eviction_passes_(cache.eviction_passes) {
    if (!has_memory_) return;
    for (Buffer* buffer : {layer.dense.k.get(), layer.dense.v.get(), layer.dense.tokens.get(), layer.state.get()}) {
        std::vector<std::byte>& bytes = buffers_.emplace_back(buffer->size());
        buffer->read(0, bytes.data(), bytes.size());
    }
}

void LayerBackup::restore() {
    cache_.device.finish();
    cache_.eviction_passes = eviction_passes_;
    if (!layer_.state) return;
    if (!has_memory_) {
        cache_.layer_bytes -= layer_.bytes();
        layer_ = Layer(*cache_.geometry, layer_.number);
        return;
    }
    size_t at = 0;
    for (Buffer* buffer : {layer_.dense.k.get(), layer_.dense.v.get(), layer_.dense.tokens.get(), layer_.state.get()}) {
        buffer->write(0, buffers_[at].data(), buffers_[at].size());
        ++at;
    }
    layer_.index = index_;
    layer_.cold.map = map_;
    layer_.cold.region = region_;
    layer_.cold.is_moved = false;
    layer_.most_in_packed = most_in_packed_;
    layer_.outputs = outputs_;
    layer_.has_means = has_means_;
    layer_.is_signed = false;
    free_frames(*cache_.geometry, layer_.number, *layer_.index_memory, layer_.hot);
}

} // namespace winnow::cache
