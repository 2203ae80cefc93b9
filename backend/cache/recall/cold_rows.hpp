// The packed rows of a layer whose cold tier is a file: brought into memory for calls that need all of them, appended,
// and read page by page where a query picks them.
//
// A page's rows lie together, one KV head after another, so that what an eviction pass packs is written at once and
// what a head misses is one read:
//
//     | page 0: head 0: K K V V | head 1: K K V V | ... | page 1: head 0: K K V V | ...          (pages of two slots)
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/cache_state.hpp"
#include "cache/failures.hpp"

namespace winnow::cache {

// How many bytes of the file the pages take that have so many slots of a layer.
uint64_t cold_file_bytes(const Geometry& geometry, int64_t layer, int64_t slots);
// How many bytes ColdScratch takes, for layers of up to so many slots.
uint64_t cold_scratch_bytes(const Geometry& geometry, int64_t slots);
// Allocates or enlarges the scratch memory; nothing where the rows lie in memory. beside: bytes that the call has.
void take_cold_scratch(CacheState& cache, int64_t slots, uint64_t beside = 0);
// Of it, the map: with so many bytes at least.
void take_slot_map(CacheState& cache, uint64_t size);
// The file of a cache whose configuration names a folder; none for others.
std::shared_ptr<ColdFile> open_cold_file(const Geometry& geometry, const Log& log);

// While it lives, the packed segment of a layer lies in memory. It does nothing where it does so anyway: without a
// file, or within another one.
class Fetched {
public:
    Fetched(CacheState& cache, Layer& layer); // all of it
    // What an eviction pass appends to: from the page of the first slot behind all rows on, room for so many.
    struct EndOf {};
    Fetched(EndOf, CacheState& cache, Layer& layer, int64_t rows);
    ~Fetched();
    Fetched(const Fetched&) = delete;
    Fetched& operator=(const Fetched&) = delete;

    // Rows were written in slots whose tokens stayed.
    void changed_rows() { has_changed_rows_ = true; }
    // Writes what changed. Where it fails, file and map are as they were. Rows that took the place of others go to a
    // new region, with all others.
    void store();

private:
    Fetched(CacheState& cache, Layer& layer, int64_t first, int64_t slots, Rows* scratch = nullptr);
    void give_back();

    CacheState& cache_;
    Layer& layer_;
    bool is_owner_ = false, has_changed_rows_ = false;
    std::optional<Passing> memory_;
    Rows* scratch_ = nullptr; // that is used in the place of memory
    int64_t slots_ = 0;       // of the whole segment
    std::vector<int32_t> before_;
};

// A layer's packed segment up to a slot, one stretch after another: a part of it where it lies in memory, else rows
// that are read from the file while the device is busy with the stretch before.
//
//     | stretch | stretch | stretch |   -> memory for one, and for what was read of the next
class Stretches {
public:
    Stretches(CacheState& cache, Layer& layer, int64_t end, int64_t at_once); // slots, a multiple of a page's
    bool next(); // turns to the next one; the first time to the first
    int64_t first() const { return first_; }
    const Segment& segment() const { return segment_; }
    void read_ahead(); // once this one was launched

private:
    int64_t slots_from(int64_t first) const;
    void read(int64_t first);

    CacheState& cache_;
    Layer& layer_;
    int64_t end_, at_once_, first_ = 0, slots_ = 0;
    Segment segment_;
    Rows rows_;
    std::vector<std::byte> bytes_; // of the pages from slot `read_` on
    int64_t read_ = -1;
    std::optional<Passing> memory_;
};

// The packed rows of a new layer, which lie in memory, go to a region of their own, and their buffers go.
void move_to_file(CacheState& cache, Layer& layer);
// The rows of another layer's region in a region of its own, with the map.
void copy_cold_rows(CacheState& cache, const Layer& from, Layer& to);

// Copies rows of the pages that came into frames since these had the pages `before`, [head][frame].
void bring_pages(CacheState& cache, Layer& layer, const std::vector<int32_t>& before);
std::vector<int32_t> frame_pages(const Geometry& geometry, const Layer& layer);

// What a layer is before a call whose reads and writes of the file may fail.
class LayerBackup {
public:
    LayerBackup(CacheState& cache, Layer& layer);
    void restore(); // once what was enqueued is done

private:
    CacheState& cache_;
    Layer& layer_;
    TokenIndex index_;
    ColdMap map_;
    std::shared_ptr<ColdRegion> region_;
    std::vector<std::vector<std::byte>> buffers_; // of the dense segment, and the state
    int64_t most_in_packed_, outputs_;
    bool has_means_, has_memory_;
    uint64_t eviction_passes_;
};

// Runs what changes a layer. Where the file fails it, or there is no memory for rows of it, the layer is as before.
template <class Action>
void keeping_layer(CacheState& cache, Layer& layer, Action&& action) {
    if (!cache.cold_file) {
        action();
        return;
    }
    LayerBackup backup(cache, layer);
    undoing([&] { backup.restore(); }, action);
}

} // namespace winnow::cache
