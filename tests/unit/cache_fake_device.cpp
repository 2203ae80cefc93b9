// Records, counts and failures over the reference's operations.
#include "cache_fake_device.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "reference/slot_rows.hpp"
#include "reference/view.hpp"

namespace winnow::cache {
namespace {

using reference::entry;
using reference::is_live;
using reference::token_id_of;

class CountedBuffer final : public reference::HostBuffer {
public:
    CountedBuffer(uint64_t size, FakeDevice& device) : HostBuffer(size), device_(device) {
        device.in_use += size;
        device.most_in_use = std::max(device.most_in_use, device.in_use);
    }
    ~CountedBuffer() override {
        device_.in_use -= HostBuffer::size();
        ++device_.waits;
    }
    uint64_t size() const override { return ++device_.sizes_asked, HostBuffer::size(); }
    void write(uint64_t offset, const void* data, uint64_t size) override {
        if (offset + size > HostBuffer::size()) throw std::out_of_range("write beyond a buffer");
        HostBuffer::write(offset, data, size);
        ++device_.waits;
    }
    void read(uint64_t offset, void* data, uint64_t size) override {
        if (offset + size > HostBuffer::size()) throw std::out_of_range("read beyond a buffer");
        HostBuffer::read(offset, data, size);
        ++device_.waits;
    }

private:
    FakeDevice& device_;
};

DeviceRequest request() {
    DeviceRequest request;
    request.device = "cpu";
    return request;
}

} // namespace

FakeDevice::FakeDevice() : ReferenceDevice(request()) {}

void FakeDevice::clear() {
    attentions.clear();
    eviction_passes.clear();
    zeroings.clear();
    launches = 0;
}

std::unique_ptr<Buffer> FakeDevice::allocate(uint64_t size, uint8_t filling) {
    if (size == 0) throw std::invalid_argument("a buffer of no bytes");
    if (allocations_until_failure == 0) throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "the test wants no more memory");
    if (allocations_until_failure > 0) --allocations_until_failure;
    auto buffer = std::make_unique<CountedBuffer>(size, *this);
    std::memset(buffer->data(), filling, size);
    return buffer;
}

std::string FakeDevice::validate(const Sdpa& args) const {
    if (refuses_attention) throw Error(WINNOW_ERROR_UNSUPPORTED, "the test wants no attention");
    if (args.segments.empty()) throw std::invalid_argument("attention without segments");
    return ReferenceDevice::validate(args);
}

std::unique_ptr<Event> FakeDevice::launch(const Sdpa& args, bool want_event) {
    attentions.push_back(args);
    ++launches;
    seen.assign(static_cast<size_t>(args.segments.at(0).kv_heads()), {});
    for (const Segment& segment : args.segments)
        for (int64_t head = 0; head < segment.kv_heads(); ++head)
            for (int64_t slot = 0; slot < segment.slots(); ++slot) {
                const int32_t token = entry(segment.tokens, head, slot);
                if (!is_live(token)) continue;
                float value = 0; // of a segment of some heads: such rows are looked at by the suite
                if (segment.heads == 0)
                    value = static_cast<float>(reference::slot_row(segment.v, segment.v_mean, head, slot)[0]);
                else if ((segment.heads >> head & 1) == 0)
                    continue;
                if (!seen[static_cast<size_t>(head)].emplace(token_id_of(token), value).second)
                    throw std::logic_error("a head holds a token twice");
            }
    return ReferenceDevice::launch(args, want_event);
}

void FakeDevice::launch(const SlotAppend& args) {
    ++launches;
    for (int64_t head = 0; head < args.segment.kv_heads(); ++head)
        for (int64_t t = 0; t < args.k.shape[2]; ++t) {
            const int64_t slot = args.slots ? entry(args.slots, head, t) : args.first + (args.offset + t) % args.count;
            if (slot < 0 && !heads_differ) throw std::logic_error("a token without a slot");
            if (slot >= 0 && is_live(entry(args.segment.tokens, head, slot)))
                throw std::logic_error("a token on another's slot");
        }
    ReferenceDevice::launch(args);
}

void FakeDevice::launch(const SlotAccumulate& args) {
    ++launches;
    ReferenceDevice::launch(args);
}

void FakeDevice::launch(const SlotScores& args) {
    ++launches;
    ReferenceDevice::launch(args);
}

void FakeDevice::launch(const SlotEvict& args) {
    eviction_passes.push_back(args);
    ++launches;
    ReferenceDevice::launch(args);
    for (int64_t head = 0; head < args.packed.kv_heads(); ++head) {
        int64_t live = 0;
        for (int64_t slot = 0; slot < args.packed.slots(); ++slot)
            live += is_live(entry(args.packed.tokens, head, slot));
        if (reference::head_state(args.head_state, head).shortfall > 0 &&
            (live == args.packed.slots() || live + args.wanted_free > args.packed.slots()))
            throw std::logic_error("protected rows leave no room");
    }
}

void FakeDevice::launch(const SlotEdit& args) {
    if (fails_edits) throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "the test wants no edit");
    ++launches;
    ReferenceDevice::launch(args);
}

void FakeDevice::launch(const SlotCompact& args) {
    ++launches;
    ReferenceDevice::launch(args);
}

void FakeDevice::launch(const SlotCopy& args) {
    ++launches;
    ReferenceDevice::launch(args);
}

void FakeDevice::launch(const SlotZero& args) {
    zeroings.push_back(args);
    ++launches;
    ReferenceDevice::launch(args);
}

// In one launch, which either is or is not.
void FakeDevice::attend(const SlotAttend& args) {
    if (fails_steps) throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "the test wants no step");
    if (args.counted_queries > 0 && args.attention.q_len() == 1) {
        int64_t slots = 0;
        for (const Segment& segment : args.attention.segments) slots += whole_weight_slots(segment.slots());
        const int64_t floats = fused_weight_floats(args.attention.q_heads(), args.attention.kv_heads(), slots);
        if (args.weights.shape[3] < floats) throw std::logic_error("too little memory for weights");
        const std::vector<float> weights(static_cast<size_t>(floats), -1);
        args.weights.buffer->write(args.weights.offset, weights.data(), 4 * weights.size());
        --waits; // this one is the test's
    }
    Device::attend(args);
}

std::vector<int32_t> positions_of(Cache& cache, int64_t sequence, int64_t layer, int64_t head) {
    std::vector<int32_t> all;
    for (const HeldToken& each : cache.tokens(sequence, layer, head, false)) all.push_back(each.id);
    return all;
}

std::vector<int32_t> segments_of(Cache& cache, int64_t sequence, int64_t layer, int64_t head) {
    std::vector<int32_t> all;
    for (const HeldToken& each : cache.tokens(sequence, layer, head, false)) all.push_back(each.segment);
    return all;
}

std::vector<float> importance_of(Cache& cache, int64_t sequence, int64_t layer, int64_t head) {
    std::vector<float> all;
    for (const HeldToken& each : cache.tokens(sequence, layer, head, true)) all.push_back(each.importance);
    return all;
}

HostRows::HostRows(int64_t of_heads, int64_t of_tokens, int64_t of_size)
    : heads(of_heads), tokens(of_tokens), size(of_size), values(static_cast<size_t>(of_heads * of_tokens * of_size)) {}

float& HostRows::at(int64_t head, int64_t token, int64_t element) {
    return values[static_cast<size_t>((head * tokens + token) * size + element)];
}

Tensor HostRows::tensor() {
    Tensor tensor;
    tensor.type = Type::f32;
    tensor.data = reinterpret_cast<std::byte*>(values.data());
    tensor.shape = {1, heads, tokens, size};
    tensor.stride = {heads * tokens * size * 4, tokens * size * 4, size * 4, 4};
    return tensor;
}

} // namespace winnow::cache
