// From winnow::SlotAppend to a launch of slot_append.
#include "opencl/kv_rows.hpp"
#include "opencl/launchers.hpp"
#include "opencl/view.hpp"
#include "slot_append_params.h"

namespace winnow::opencl {
namespace {

slot_append_side make_side(const Tensor& src, const Bound& bound, Norm norm, const Variant& variant,
                           uint32_t compute_units) {
    slot_append_side side{};
    side.src = view(src, bound);
    side.size = static_cast<uint32_t>(src.shape[3]);
    side.src_type = static_cast<uint32_t>(src.type);
    side.norm = static_cast<uint32_t>(norm);
    const auto rows = static_cast<uint32_t>(src.shape[1] * src.shape[2]);
    side.rows_per_group = rows_per_group(variant, rows, side.size, compute_units);
    side.groups = (rows + side.rows_per_group - 1) / side.rows_per_group;
    return side;
}

} // namespace

void launch(Runtime& runtime, SegmentKernel& kernels, const SlotAppend& args) {
    check_segment(args.segment, "slot_append: the segment's");
    check_row_count(args.k.shape, "slot_append: k");
    Kernel& kernel = kernels.get(runtime, args.segment.k, args.segment.v);

    Operation operation(runtime);
    const Bound k = operation.bind(args.k, Access::read);
    const Bound v = operation.bind(args.v, Access::read);
    const BoundSegment segment = bind_segment(operation, args.segment, Access::read_write);
    const Bound slots = operation.bind(args.slots, Access::read);
    const Bound token_ids = operation.bind(args.token_ids, Access::read);
    const Bound positions = operation.bind(args.positions, Access::read_write);
    slot_append_params params{};
    const Variant& variant = kernels.variant();
    params.k = make_side(args.k, k, args.k_norm, variant, runtime.capabilities().compute_units);
    params.v = make_side(args.v, v, args.v_norm, variant, runtime.capabilities().compute_units);
    params.segment = segment.params;
    if (args.slots) params.slots = view_of_heads(args.slots, slots);
    params.token_ids = token_ids.offset;
    params.positions = positions.offset;
    params.position = static_cast<int32_t>(args.position);
    params.first = args.first;
    params.count = args.count;
    params.offset = args.offset;
    params.token_id = static_cast<int32_t>(args.token_id);
    params.heads = static_cast<uint32_t>(args.k.shape[1]);
    params.tokens = static_cast<uint32_t>(args.k.shape[2]);
    const uint64_t rows = static_cast<uint64_t>(params.heads) * params.tokens;
    operation.launch(kernel, params,
                     {k.memory, v.memory, segment.k, segment.v, segment.tokens, segment.importance, segment.k_mean,
                      segment.v_mean, slots.memory, token_ids.memory, positions.memory},
                     Grid{.groups = {params.k.groups + params.v.groups, 1, 1},
                          .group_size = {variant.group_size, 1, 1},
                          .work = rows * (params.k.size * work_of_element(args.k.type, args.segment.k.type) +
                                          params.v.size * work_of_element(args.v.type, args.segment.v.type)),
                          .bytes = args.k.stored_bytes() + args.v.stored_bytes() +
                                   rows * (row_bytes(args.segment.k.type, params.k.size) +
                                           row_bytes(args.segment.v.type, params.v.size) + sizeof(int32_t))});
    operation.complete(false);
}

} // namespace winnow::opencl
