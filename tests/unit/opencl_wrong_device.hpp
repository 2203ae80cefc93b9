// A device on which an operation comes out wrong.
#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "device/pages.hpp"
#include "device/slots.hpp"
#include "opencl_test.hpp"
#include "reference/device.hpp"

namespace winnow::opencl {

// The reference, but that one operation leaves a wrong first number in one of its outputs.
class WrongDevice : public reference::ReferenceDevice {
public:
    explicit WrongDevice(std::string operation = {}, size_t output = 0)
        : ReferenceDevice(plain_request()), operation_(std::move(operation)), output_(output) {}

    size_t outputs = 0; // of the operation

    using ReferenceDevice::launch;
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event) override {
        return spoiled(ReferenceDevice::launch(args, want_event), "sdpa", {args.out});
    }
    std::unique_ptr<Event> launch(const KvAppend& args, bool want_event) override {
        return spoiled(ReferenceDevice::launch(args, want_event), "kv_append", {args.k.cache, args.v.cache});
    }
    std::unique_ptr<Event> launch(const KvRequantize& args, bool want_event) override {
        return spoiled(ReferenceDevice::launch(args, want_event), "kv_requantize", {args.dst});
    }
    std::unique_ptr<Event> launch(const KvDequantize& args, bool want_event) override {
        return spoiled(ReferenceDevice::launch(args, want_event), "kv_dequantize", {args.dst});
    }
    std::unique_ptr<Event> launch(const Hadamard& args, bool want_event) override {
        return spoiled(ReferenceDevice::launch(args, want_event), "hadamard", {args.dst});
    }
    void attend(const SlotAttend& args) override {
        ReferenceDevice::attend(args);
        const Segment &dense = args.attention.segments[0], &packed = args.attention.segments[1];
        spoil("fused attention", {args.attention.out, args.output_sum, dense.k, dense.v, dense.tokens, dense.importance,
                                  packed.importance, packed.tokens});
    }
    void launch(const SlotAppend& args) override {
        ReferenceDevice::launch(args);
        const Segment& segment = args.segment;
        spoil("slot_append", {segment.k, segment.v, segment.tokens, segment.importance});
    }
    void launch(const SlotAccumulate& args) override {
        ReferenceDevice::launch(args);
        spoil("slot_accumulate", {args.segments[0].importance, args.output_sum});
    }
    void launch(const SlotScores& args) override {
        ReferenceDevice::launch(args);
        spoil("slot_scores", {args.out});
    }
    void launch(const SlotEvict& args) override {
        ReferenceDevice::launch(args);
        spoil("slot_evict", {args.packed.k, args.packed.v, args.packed.tokens, args.packed.importance,
                             args.dense.tokens, args.free_slots, args.head_state});
    }
    void launch(const SlotEdit& args) override {
        ReferenceDevice::launch(args);
        spoil("slot_edit", {args.segments[0].tokens});
    }
    void launch(const SlotCompact& args) override {
        ReferenceDevice::launch(args);
        const Segment& segment = args.segment;
        spoil("slot_compact", {segment.k, segment.v, segment.tokens, segment.importance, args.head_state});
    }
    void launch(const SlotCopy& args) override {
        ReferenceDevice::launch(args);
        spoil("slot_copy", {args.to.k, args.to.v, args.to.tokens, args.to.importance});
    }
    void launch(const SlotZero& args) override {
        ReferenceDevice::launch(args);
        spoil("slot_zero", {args.segments[0].k, args.segments[0].v});
    }
    void launch(const PageSign& args) override {
        ReferenceDevice::launch(args);
        spoil("page_sign", {args.index.signatures, args.index.frames, args.hot.tokens});
    }
    void launch(const PagePick& args) override {
        ReferenceDevice::launch(args);
        spoil("page_pick", {args.index.frames, args.hot.k, args.hot.v, args.hot.tokens, args.counts});
    }

private:
    void spoil(std::string_view operation, const std::vector<Tensor>& tensors) {
        if (operation != operation_) return;
        outputs = tensors.size();
        const Tensor& tensor = tensors.at(output_);
        tensor.data[std::max<size_t>(type_size(tensor.type), 2) - 1] ^= std::byte{0x40};
    }
    std::unique_ptr<Event> spoiled(std::unique_ptr<Event> event, std::string_view operation,
                                   const std::vector<Tensor>& tensors) {
        spoil(operation, tensors);
        return event;
    }

    std::string operation_;
    size_t output_;
};

} // namespace winnow::opencl
