// A device in host memory for tests of the cache: it carries out the operations on slots in plain loops over rows of
// F32, notes what was launched, and fails where it is told to.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "device/slots.hpp"

namespace winnow::cache {

class FakeBuffer : public Buffer {
public:
    FakeBuffer(uint64_t size, uint64_t& in_use, uint64_t& asked) : bytes_(size), in_use_(in_use), asked_(asked) {
        in_use_ += size;
    }
    ~FakeBuffer() override { in_use_ -= bytes_.size(); }
    uint64_t size() const override { return ++asked_, bytes_.size(); }
    void write(uint64_t offset, const void* data, uint64_t size) override;
    void read(uint64_t offset, void* data, uint64_t size) override;
    std::byte* at(uint64_t offset) { return bytes_.data() + offset; }

private:
    std::vector<std::byte> bytes_;
    uint64_t& in_use_;
    uint64_t& asked_;
};

class FakeDevice : public Device {
public:
    // What was launched since the test last cleared it.
    std::vector<SlotAppend> appends;
    std::vector<SlotAttention> attentions;
    std::vector<SlotAccumulate> observations;
    std::vector<SlotEvict> eviction_passes;
    std::vector<std::string> log; // their names in order
    // What the last attention found alive: for each KV head the numbers, and of each the first element of V.
    std::vector<std::map<int32_t, float>> seen;

    int64_t allocations_until_failure = -1; // none of them fails
    uint64_t in_use = 0, most_in_use = 0;   // bytes
    uint64_t sizes_asked = 0;               // how often a buffer told its size
    bool refuses_attention = false;
    bool fails_steps = false;

    void clear();

    void info(winnow_device_info&) const override {}
    void stats(winnow_stats&) const override {}
    std::unique_ptr<Buffer> allocate(uint64_t size) override;
    std::unique_ptr<Buffer> import_host(void*, uint64_t) override { absent(); }
    std::unique_ptr<Buffer> import_cl_mem(void*, uint64_t, uint64_t) override { absent(); }
    std::string validate(const Sdpa&) const override { absent(); }
    std::string validate(const KvAppend&) const override { absent(); }
    std::string validate(const KvRequantize&) const override { absent(); }
    std::string validate(const KvDequantize&) const override { absent(); }
    std::string validate(const Hadamard&) const override { absent(); }
    std::unique_ptr<Event> launch(const Sdpa&, bool) override { absent(); }
    std::unique_ptr<Event> launch(const KvAppend&, bool) override { absent(); }
    std::unique_ptr<Event> launch(const KvRequantize&, bool) override { absent(); }
    std::unique_ptr<Event> launch(const KvDequantize&, bool) override { absent(); }
    std::unique_ptr<Event> launch(const Hadamard&, bool) override { absent(); }

    std::string validate(const SlotAttention& args) const override;
    void launch(const SlotAttention& args) override;
    void launch(const SlotAppend& args) override;
    void launch(const SlotAccumulate& args) override;
    void launch(const SlotScores& args) override;
    void launch(const SlotEvict& args) override;
    void launch(const SlotEdit& args) override;
    void launch(const SlotCompact& args) override;
    void launch(const SlotCopy& args) override;
    void step(const SlotStep& args) override;
    std::unique_ptr<Event> mark() override { absent(); }
    void flush() override {}
    void finish() override {}
    void wait_cl_event(void*) override { absent(); }

private:
    [[noreturn]] static void absent() { throw Error(WINNOW_ERROR_INTERNAL, "the cache does not call this"); }
};

// Rows of a step in host memory: [1, heads, tokens, size] of F32.
struct HostRows {
    HostRows(int64_t heads, int64_t tokens, int64_t size);
    float& at(int64_t head, int64_t token, int64_t element);
    Tensor tensor();

    int64_t heads, tokens, size;
    std::vector<float> values;
};

} // namespace winnow::cache
