// What a cache holds, and what the functions on it share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <optional>
#include <set>
#include <vector>

#include "cache/layer.hpp"

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
        return map ? map->size() + read.size() + bytes_of(geometry, 0, Part::packed, end.slots) : 0;
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

struct CacheState {
    CacheState(Device& on, std::unique_ptr<Geometry> sizes);
    // The cache again, with its new_sequences; nothing of it can fail.
    CacheState(CacheState& before, std::vector<Sequence> empty);

    Device& device;
    std::unique_ptr<Geometry> geometry;
    Log log = [](int32_t, const std::string&) {};
    std::shared_ptr<ColdFile> cold_file; // of recall; none: the cold tier lies in memory, as packed segments
    std::unique_ptr<Buffer> codebooks;   // of recall, of all layers; none: signatures are of signs
    ColdScratch cold_scratch;
    std::unique_ptr<Buffer> carried;        // of recall, where memory is reserved: what the queries of a prompt carry
    std::unique_ptr<Buffer> cell_positions; // likewise: what evict_oldest takes
    double pressure = 0;                    // negative: the machine's counts
    std::vector<Sequence> sequences;
    // Of moe: how often each expert of a layer was chosen; no layers, or layers without experts, before the first.
    std::vector<std::vector<uint64_t>> expert_counts;
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
    void replace_sequences(std::vector<Sequence>& others); // swaps
    uint64_t bytes() const {                               // with scratch
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

// Memory for a call: what the cache keeps for it where that is large enough, or else the call's own.
class CallMemory {
public:
    void take(CacheState& cache, Buffer* kept, uint64_t bytes) {
        buffer_ = kept;
        if (kept != nullptr && kept->size() >= bytes) return;
        own_ = cache.device.allocate(bytes);
        buffer_ = own_.get();
        passing_.emplace(cache, bytes);
    }
    Buffer* get() const { return buffer_; } // NULL before

private:
    Buffer* buffer_ = nullptr;
    std::unique_ptr<Buffer> own_;
    std::optional<Passing> passing_;
};

// Memory that a layer is going to have, taken before anything changes.
struct Growth : SegmentRows { // those without slots stay as they are
    bool is_new = false;
    Rows hot;               // of recall, as the index
    ColdReservation region; // of the packed segment, where its rows lie in a file
    std::unique_ptr<Buffer> state, index_memory;
    Scratch scratch; // without slots: as it is
    uint64_t bytes = 0;

    bool is_empty() const { return !is_new && packed_slots() == 0 && scratch.slots == 0; }
};

// Memory of a packed segment; without buffers where its rows lie in a file.
Rows make_packed_rows(CacheState& cache, const Geometry& geometry, int64_t layer, Part part, int64_t slots);

// Takes the memory of a layer whose heads are going to hold `resident` tokens outside the sinks' slots. scores: scratch
// for the scores of an attention is needed, also under a policy without an importance. scratch: slots for which another
// growth has taken scratch already.
Growth grow(CacheState& cache, const Layer& layer, int64_t resident, bool scores, int64_t scratch = 0);
// Segments as they are going to be, for validation; picks: those of a query that picks pages.
std::vector<Segment> segments_after(const Geometry& geometry, const Layer& layer, const Growth& growth, bool picks);
void commit(CacheState& cache, Layer& layer, Growth growth);

// Why an eviction pass evicts: because the policy's budget requires it, or only so that rows find slots.
enum class Demanded { by_budget, by_room };
// Launches an eviction pass under the budget reduced by `less` tokens, which moves the oldest `leaving` residual rows
// into the packed segment.
void evict(CacheState& cache, Layer& layer, int64_t leaving, int64_t incoming, int64_t less = 0,
           Demanded demanded = Demanded::by_budget);

// Under recall with a budget of tokens: where an eviction pass that moves so many rows would find no room, the oldest
// tokens go, more of them than this pass needs, and the others' rows are moved together and signed.
// cell_positions: cell_positions_bytes, in a cache with cells.
void evict_oldest(CacheState& cache, Layer& layer, int64_t leaving, Buffer* cell_positions,
                  Demanded demanded = Demanded::by_budget);
// Whether it has to: a head may hold more than an eviction pass of these rows leaves, or lack slots for them.
// more: so many tokens may come before.
bool lacks_room(const Geometry& geometry, const Layer& layer, int64_t leaving, int64_t more = 0,
                Demanded demanded = Demanded::by_budget);
uint64_t cell_positions_bytes(const Geometry& geometry);

// How many slots of a layer's packed segments are free in each head.
std::vector<int64_t> free_in_packed(const Geometry& geometry, const Layer& layer);

// How many tokens may then come before evict_oldest is due again: whole chunks, at least one.
int64_t room_of_newest(const Geometry& geometry, const Layer& layer, int64_t chunk);

// Compacts the packed segments and tells how many tokens a head has there at most. No slot is free-listed afterwards.
int64_t compact(CacheState& cache, Layer& layer);
// The same, and how many a head has in each of them at most.
std::vector<int64_t> compact_each(CacheState& cache, Layer& layer);

// Compacts a layer's packed segments and gives back the memory that became free. Without memory for a smaller one the
// larger one stays.
void shrink(CacheState& cache, const Sequence& sequence, Layer& layer);
// Forgets what the layers hold, with their memory.
void drop(CacheState& cache, Sequence& sequence);

// Runs, and waits for what was enqueued, also where it fails in the middle. Where the waiting fails, results that it
// was to bring do not come any more: the caller's memory for them may go.
template <class Action>
void finishing(Device& device, Action&& action) {
    const uint64_t results = device.next_result();
    try {
        action();
        device.finish();
    } catch (...) {
        try {
            device.finish(); // also where it was the waiting that failed
        } catch (...) {      // what failed first says more
            device.drop_results_from(results);
        }
        throw;
    }
}

// Runs what reads or writes a file of rows. Where the file fails it, or there is no memory for rows, `undo` runs.
template <class Action, class Undo>
void undoing(Undo&& undo, Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        if (error.status() == WINNOW_ERROR_IO || error.status() == WINNOW_ERROR_OUT_OF_MEMORY) undo();
        throw;
    } catch (const std::bad_alloc&) {
        undo();
        throw;
    }
}

uint64_t launches(const Device& device);
// Throws a failure; as one after a change where something was changed, and then waits before, so that nothing of what
// failed runs any more.
[[noreturn]] void fail(Device& device, bool has_changed, const Error& error);

// Runs what changes a cache, or outputs, by launches. A failure after the first of them may leave it half done: it is
// the device's then, so that WINNOW_ERROR_OUT_OF_MEMORY says that all is as before. has_begun: so is one before it.
template <class Action>
void changing(Device& device, Action&& action, bool has_begun = false) {
    const uint64_t before = launches(device);
    const auto has_changed = [&] { return has_begun || launches(device) != before; };
    try {
        action();
    } catch (const Error& error) {
        fail(device, has_changed(), error);
    } catch (const std::bad_alloc&) {
        fail(device, has_changed(), Error(WINNOW_ERROR_OUT_OF_MEMORY, "out of host memory"));
    }
}

// Changes the entries of slot maps whose token ids are in a range, and nothing else.
void edit(CacheState& cache, Layer& layer, SlotEdit::Action action, Range token_ids, int64_t delta = 0);

// Marks the tokens of a layer whose token ids are among the anchors and in a range.
void mark_anchors(CacheState& cache, Layer& layer, const std::set<int64_t>& anchors, Range token_ids);

} // namespace winnow::cache
