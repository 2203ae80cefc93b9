// A segment as kernels see it.
#include "opencl/slot_segment.hpp"

#include "opencl/kv_rows.hpp"
#include "opencl/view.hpp"

namespace winnow::opencl {
namespace {

const Memory* bind_heads(Operation& operation, const Tensor& tensor, Access access, head_view& heads) {
    const Bound bound = operation.bind(tensor, access);
    if (tensor) heads = view_of_heads(tensor, bound);
    return bound.memory;
}

} // namespace

uint32_t parts_of(const Variant& variant, uint64_t slots) {
    if (variant.slots_of_group == 0) return 1;
    return static_cast<uint32_t>((slots + variant.slots_of_group - 1) / variant.slots_of_group);
}

head_view view_of_heads(const Tensor& tensor, const Bound& bound) { return {bound.offset, tensor.stride[1]}; }

BoundSegment bind_segment(Operation& operation, const Segment& segment, Access access) {
    BoundSegment result;
    if (!segment.tokens) return result;
    const Bound k = operation.bind(segment.k, access);
    const Bound v = operation.bind(segment.v, access);
    result.k = k.memory;
    result.v = v.memory;
    result.params.k = view(segment.k, k);
    result.params.v = view(segment.v, v);
    result.tokens = bind_heads(operation, segment.tokens, access, result.params.tokens);
    result.importance = bind_heads(operation, segment.importance, access, result.params.importance);
    result.k_mean = bind_heads(operation, segment.k_mean, access, result.params.k_mean);
    result.v_mean = bind_heads(operation, segment.v_mean, access, result.params.v_mean);
    result.params.slots = static_cast<uint32_t>(segment.slots());
    result.params.k_type = static_cast<uint32_t>(segment.k.type);
    result.params.v_type = static_cast<uint32_t>(segment.v.type);
    return result;
}

void check_segment(const Segment& segment, const char* name) {
    check_row(segment.k, name, false, " k");
    check_row(segment.v, name, false, " v");
}

Kernel& SegmentKernel::get(Runtime& runtime, const Tensor& k, const Tensor& v, std::span<const Segment> lower) {
    std::array<Type, 4> types{};
    for (size_t i = 0; i < lower.size(); ++i) {
        types[2 * i] = lower[i].k.type;
        types[2 * i + 1] = lower[i].v.type;
    }
    if (kernel_ == nullptr || k.type != k_ || v.type != v_ || k.shape[3] != k_size_ || v.shape[3] != v_size_ ||
        types != lower_) {
        variant_ = &rows_variant(runtime, operation_);
        kernel_ = &runtime.kernel(variant_->file, variant_->entry_point, kv_options(k, v, lower));
        lower_ = types;
        k_ = k.type;
        v_ = v.type;
        k_size_ = k.shape[3];
        v_size_ = v.shape[3];
    }
    return *kernel_;
}

} // namespace winnow::opencl
