// What the launchers of the operations on slots share: a segment bound to a kernel's arguments.
#pragma once

#include <array>
#include <span>
#include <string>

#include "device/slots.hpp"
#include "opencl/runtime.hpp"
#include "opencl/variants.hpp"
#include "slot_segment_params.h"

namespace winnow::opencl {

// Of Runtime::scratch, for the operations on slots; nothing in it is to last beyond a call.
constexpr int slot_scratch = 3;

struct BoundSegment {
    const Memory* k = nullptr;
    const Memory* v = nullptr;
    const Memory* tokens = nullptr;
    const Memory* importance = nullptr;
    const Memory* k_mean = nullptr;
    const Memory* v_mean = nullptr;
    slot_segment params{};
};

// A segment without slots may be absent, and gives null pointers. All of it is bound read_write but where it is `read`.
BoundSegment bind_segment(Operation& operation, const Segment& segment, Access access);

// Into how many parts a variant's groups divide so many slots of a KV head.
uint32_t parts_of(const Variant& variant, uint64_t slots);

head_view view_of_heads(const Tensor& tensor, const Bound& bound);

// Throws UNSUPPORTED where no kernel takes the segment's rows. name: of the segment, in messages.
void check_segment(const Segment& segment, const char* name);

// A kernel of one source file, specialised for a segment's formats, and those of the packed segments below it. The last
// one used is remembered: decoding asks for the same again and again, and the options are costlier to make than the
// comparison.
class SegmentKernel {
public:
    explicit SegmentKernel(const char* operation) : operation_(operation) {}
    Kernel& get(Runtime& runtime, const Tensor& k, const Tensor& v, std::span<const Segment> lower = {});
    const Variant& variant() const { return *variant_; } // of the last one

private:
    const char* operation_;
    Kernel* kernel_ = nullptr;
    const Variant* variant_ = nullptr;
    Type k_ = Type::none, v_ = Type::none;
    int64_t k_size_ = 0, v_size_ = 0;
    std::array<Type, 4> lower_{}; // K and V of each
};

} // namespace winnow::opencl
