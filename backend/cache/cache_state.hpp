// What a cache holds, and what the functions on it share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <vector>

#include "cache/layer.hpp"

namespace winnow::cache {

struct Sequence {
    std::vector<Layer> layers;
    std::set<int64_t> anchors; // numbers, of tokens still to come too
    int64_t reserved = 0;      // tokens for which memory stays

    uint64_t bytes() const;
};

// What lasts no longer than a step of a layer, every layer's in turn.
struct Scratch {
    int64_t slots = 0;
    std::unique_ptr<Buffer> scores; // of one attention, in the order of slots; or the records of a step of one token
    std::unique_ptr<Buffer> row_stats;
};

Scratch make_scratch(Device& device, const Geometry& geometry, int64_t slots); // throws where there is no memory

struct CacheState {
    CacheState(Device& on, std::unique_ptr<Geometry> sizes);

    Device& device;
    std::unique_ptr<Geometry> geometry;
    double pressure = 0; // negative: that of the machine
    std::vector<Sequence> sequences;
    Scratch scratch;
    uint64_t layer_bytes = 0; // of all layers of all sequences, kept by whatever changes them
    uint64_t peak_bytes = 0;
    uint64_t evictions = 0; // of layers whose memory is gone
    uint64_t eviction_passes = 0;
    uint64_t steps = 0;

    Sequence& sequence(int64_t number) { return sequences[static_cast<size_t>(number)]; }
    Sequence new_sequence() const;
    void replace_sequences(std::vector<Sequence>& others);                                  // swaps
    uint64_t bytes() const { return layer_bytes + geometry->scratch_bytes(scratch.slots); } // with scratch
    void note_peak(uint64_t extra) { peak_bytes = std::max(peak_bytes, bytes() + extra); }
    double pressure_now() const;
};

// Memory that a layer is going to have, taken before anything changes.
struct Growth {
    bool is_new = false;
    Rows dense, packed; // without slots: as they are
    std::unique_ptr<Buffer> state;
    Scratch scratch; // without slots: as it is
    uint64_t bytes = 0;
};

// For a layer whose heads are going to hold `resident` tokens outside the sinks' slots; scores: those of an attention
// over it are wanted in any case; scratch: for so many slots there is going to be one.
Growth grow(CacheState& cache, const Layer& layer, int64_t number, int64_t resident, bool scores, int64_t scratch = 0);
// Segments as they are going to be, for validation.
std::vector<Segment> segments_after(const Geometry& geometry, const Layer& layer, const Growth& growth);
void commit(CacheState& cache, Layer& layer, Growth growth);

// Why an eviction pass requires tokens to go: the policy's budget, or only so that the rows find slots.
enum class Demanded { by_budget, by_room };
// An eviction pass under the budget less so many tokens; the oldest `leaving` residual rows go into the packed segment.
void evict(CacheState& cache, Layer& layer, int64_t number, int64_t leaving, int64_t incoming, int64_t less = 0,
           Demanded demanded = Demanded::by_budget);

// Moves a packed segment's survivors together and tells how many the fullest head has. Slots that were listed are so no
// more.
int64_t gather(CacheState& cache, Layer& layer);

// Gathers a packed segment's survivors and gives back the memory that became free. Without memory for the smaller
// packed segment the larger one stays.
void compact(CacheState& cache, Sequence& sequence, int64_t number);
// Forgets what the layers hold, with their memory.
void drop(CacheState& cache, Sequence& sequence);

// Runs, and waits for what was enqueued, also where it fails in the middle.
template <class Action>
void finishing(Device& device, Action&& action) {
    try {
        action();
        device.finish();
    } catch (...) {
        try {
            device.finish();     // also where it was the waiting that failed
        } catch (const Error&) { // what failed first says more
        }
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

// The tokens with numbers in a range: changes the slot maps alone.
void edit(CacheState& cache, const Layer& layer, SlotEdit::Action action, Range numbers, int64_t delta = 0);

// Makes those of the tokens with numbers in a range anchors that have an anchor's number.
void mark_anchors(CacheState& cache, const Layer& layer, const std::set<int64_t>& anchors, Range numbers);

} // namespace winnow::cache
