// From winnow::SlotAppend to a launch of slot_append.
#include "opencl/slot_append.hpp"

#include "opencl/kv_rows.hpp"
#include "opencl/view.hpp"
#include "slot_append_params.h"

namespace winnow::opencl {
namespace {

slot_append_side make_side(const Tensor& src, const Bound& bound, Norm norm, uint32_t compute_units) {
    slot_append_side side{};
    side.src = view(src, bound);
    side.size = static_cast<uint32_t>(src.shape[3]);
    side.src_type = static_cast<uint32_t>(src.type);
    side.norm = static_cast<uint32_t>(norm);
    const auto rows = static_cast<uint32_t>(src.shape[1] * src.shape[2]);
    side.rows_per_group = rows_per_group(rows, side.size, compute_units);
    side.groups = (rows + side.rows_per_group - 1) / side.rows_per_group;
    return side;
}

} // namespace

void SlotAppendLauncher::launch(const SlotAppend& args) {
    check_store(args.store, "slot_append: the store's");
    check_row_count(args.k.shape, "slot_append: k");
    Kernel& kernel = kernel_.get(args.store.k, args.store.v);

    Operation operation(runtime_);
    const Bound k = operation.bind(args.k, Access::read);
    const Bound v = operation.bind(args.v, Access::read);
    const BoundStore store = bind_store(operation, args.store, Access::read_write);
    const Bound slots = operation.bind(args.slots, Access::read);
    const Bound numbers = operation.bind(args.numbers, Access::read);
    const Bound positions = operation.bind(args.positions, Access::read_write);
    slot_append_params params{};
    params.k = make_side(args.k, k, args.k_norm, runtime_.capabilities().compute_units);
    params.v = make_side(args.v, v, args.v_norm, runtime_.capabilities().compute_units);
    params.store = store.params;
    if (args.slots) params.slots = view_of_heads(args.slots, slots);
    params.numbers = numbers.offset;
    params.positions = positions.offset;
    params.position = static_cast<int32_t>(args.position);
    params.first = args.first;
    params.count = args.count;
    params.offset = args.offset;
    params.number = static_cast<int32_t>(args.number);
    params.heads = static_cast<uint32_t>(args.k.shape[1]);
    params.tokens = static_cast<uint32_t>(args.k.shape[2]);
    const uint64_t rows = uint64_t{params.heads} * params.tokens;
    operation.launch(kernel, params,
                     {k.memory, v.memory, store.k, store.v, store.tokens, store.importance, store.k_mean, store.v_mean,
                      slots.memory, numbers.memory, positions.memory},
                     Grid{.groups = {params.k.groups + params.v.groups, 1, 1},
                          .work = rows * (params.k.size * work_of_element(args.k.type, args.store.k.type) +
                                          params.v.size * work_of_element(args.v.type, args.store.v.type))});
    operation.complete(false);
}

} // namespace winnow::opencl
