// The reference device as tests of the cache have it: it records what is launched, counts what is allocated, refuses
// what a cache must not do, and fails where it is told to.
#pragma once

#include <map>
#include <vector>

#include "alike_layers.hpp"
#include "cache/cache.hpp"
#include "device/slots.hpp"
#include "reference/device.hpp"

namespace winnow::cache {

class FakeDevice : public reference::ReferenceDevice {
public:
    FakeDevice();

    // What was launched since the test last cleared it.
    std::vector<Sdpa> attentions;
    std::vector<SlotEvict> eviction_passes;
    std::vector<SlotZero> zeroings;
    uint64_t launches = 0; // of any kind
    // What the last attention found live: for each KV head the token ids, and of each the first element of V.
    std::vector<std::map<int32_t, float>> seen;

    int64_t allocations_until_failure = -1; // none of them fails
    uint64_t in_use = 0, most_in_use = 0;   // bytes
    uint64_t sizes_asked = 0;               // how often a buffer told its size
    uint64_t waits = 0;                     // calls of a cache that would wait where work is enqueued
    bool refuses_attention = false;
    bool heads_differ = false; // a state is restored of which a head does not hold every token
    bool fails_steps = false, fails_edits = false;

    void clear();

    using Device::allocate;
    using ReferenceDevice::launch;
    using ReferenceDevice::validate;
    std::unique_ptr<Buffer> allocate(uint64_t size, uint8_t filling) override;
    std::string validate(const Sdpa& args) const override;
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) override;
    void launch(const SlotAppend& args) override;
    void launch(const SlotAccumulate& args) override;
    void launch(const SlotScores& args) override;
    void launch(const SlotEvict& args) override;
    void launch(const SlotEdit& args) override;
    void launch(const SlotCompact& args) override;
    void launch(const SlotCopy& args) override;
    void launch(const SlotZero& args) override;
    void attend(const SlotAttend& args) override;
    void finish() override { ++waits; }
    void wait() override { ++waits; }
};

// What a head holds, in the order of its tokens.
std::vector<int32_t> positions_of(Cache& cache, int64_t sequence, int64_t layer, int64_t head);
std::vector<int32_t> segments_of(Cache& cache, int64_t sequence, int64_t layer, int64_t head);
std::vector<float> importance_of(Cache& cache, int64_t sequence, int64_t layer, int64_t head);

// Rows of a step in host memory: [1, heads, tokens, size] of F32.
struct HostRows {
    HostRows(int64_t heads, int64_t tokens, int64_t size);
    float& at(int64_t head, int64_t token, int64_t element);
    Tensor tensor();

    int64_t heads, tokens, size;
    std::vector<float> values;
};

} // namespace winnow::cache
