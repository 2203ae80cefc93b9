// What a cache holds, and what the functions on it share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "cache/layer/layer.hpp"

namespace winnow::cache {

struct Sequence {
    std::vector<Layer> layers;
    std::set<int64_t> anchors; // token ids, of tokens still to come too
    int64_t reserved = 0;      // tokens for which memory stays

    uint64_t bytes() const;
};

// Memory that a step of a layer uses and leaves behind; one serves all layers, one after another.
struct Scratch {
    int64_t slots = 0;
    std::unique_ptr<Buffer> scores; // of one attention, in the order of slots; or the weights of a step of one token
    std::unique_ptr<Buffer> row_stats;
};

Scratch make_scratch(Device& device, const Geometry& geometry, int64_t slots); // throws where there is no memory

// Scratch memory of the layers whose packed rows lie in a file.
struct ColdScratch {
    std::unique_ptr<Buffer> map; // the slot map of a layer
    ColdMap written;             // which one that is
    int64_t slots = 0;           // and of so many slots; 0: nothing was written
    std::vector<std::byte> read; // what was read of pages
    Rows end;                    // what an eviction pass appends to

    uint64_t bytes(const Geometry& geometry) const {
        return map ? map->size() + read.size() + shared_rows_bytes(geometry, end.slots) : 0;
    }
};

// Pages that queries picked, and those of them that had to come into the hot slots.
struct PickCounts {
    uint64_t picked = 0, missed = 0;
    PickCounts& operator+=(const PickCounts& other) {
        picked += other.picked;
        missed += other.missed;
        return *this;
    }
};

// XXH3-64 of what a cache was created with; 0: without.
struct ResourceHashes {
    uint64_t profile = 0, network = 0, codebooks = 0;
};

struct CacheState {
    CacheState(Device& on, std::unique_ptr<Geometry> sizes); // of a request that has its codebooks
    // The cache again, with its new_sequences; nothing of it can fail.
    CacheState(CacheState& before, std::vector<Sequence> empty);

    Device& device;
    std::unique_ptr<Geometry> geometry;
    Log log = [](int32_t, const std::string&) {};
    std::shared_ptr<ColdFile> cold_file; // of recall; none: the cold tier lies in memory, as packed segments
    std::unique_ptr<Buffer> codebooks;   // of recall, of all layers; none: signatures are of signs
    ResourceHashes resources;
    ColdScratch cold_scratch;
    std::unique_ptr<Buffer> carried;        // of recall, where memory is reserved: what the queries of a prompt carry
    std::unique_ptr<Buffer> cell_positions; // likewise: what evict_oldest takes
    double pressure = 0;                    // negative: the machine's counts
    std::vector<Sequence> sequences;
    Scratch scratch;
    uint64_t passing_bytes = 0; // taken by the call at hand, and given back with it
    uint64_t layer_bytes = 0;   // of all layers of all sequences, kept by whatever changes them
    uint64_t peak_bytes = 0;
    uint64_t evictions = 0; // of layers whose memory is gone
    PickCounts picks;       // likewise
    uint64_t eviction_passes = 0;
    uint64_t steps = 0;

    Sequence& sequence(int64_t number) { return sequences[static_cast<size_t>(number)]; }
    Sequence new_sequence() const;
    std::vector<Sequence> new_sequences() const;
    uint64_t bytes() const { // with scratch
        return layer_bytes + passing_bytes + geometry->scratch_bytes(scratch.slots) + cold_scratch.bytes(*geometry) +
               (carried ? carried->size() : 0) + (cell_positions ? cell_positions->size() : 0);
    }
    void note_peak(uint64_t extra) { peak_bytes = std::max(peak_bytes, bytes() + extra); }
    double pressure_now() const;
};

// So many bytes are taken while it lives.
class Passing {
public:
    Passing(CacheState& cache, uint64_t bytes) : cache_(cache), bytes_(bytes) {
        cache_.passing_bytes += bytes;
        cache_.note_peak(0);
    }
    ~Passing() { cache_.passing_bytes -= bytes_; }
    Passing(const Passing&) = delete;
    Passing& operator=(const Passing&) = delete;

private:
    CacheState& cache_;
    uint64_t bytes_;
};

// Memory for a step: what the cache keeps for it where that is large enough, or else the step's own. Taken for several
// sequences, one after the other, it serves the one that needs most.
class CallMemory {
public:
    void take(CacheState& cache, Buffer* kept, uint64_t bytes) {
        if (buffer_ != nullptr && buffer_->size() >= bytes) return;
        buffer_ = kept;
        if (suffices(kept, bytes)) return;
        own_.reset();
        passing_.reset();
        own_ = cache.device.allocate(bytes);
        buffer_ = own_.get();
        passing_.emplace(cache, bytes);
    }
    static bool suffices(const Buffer* kept, uint64_t bytes) { return kept != nullptr && kept->size() >= bytes; }
    Buffer* get() const { return buffer_; } // NULL before

private:
    Buffer* buffer_ = nullptr;
    std::unique_ptr<Buffer> own_;
    std::optional<Passing> passing_;
};

// Forgets what the layers hold, with their memory.
void drop(CacheState& cache, Sequence& sequence);

} // namespace winnow::cache
