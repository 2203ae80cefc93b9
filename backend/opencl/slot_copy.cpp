// From winnow::SlotCopy to a launch of slot_copy.
#include "opencl/launchers.hpp"

#include "opencl/kv_rows.hpp"
#include "opencl/slot_segment.hpp"
#include "slot_copy_params.h"

namespace winnow::opencl {

void launch(Runtime& runtime, const SlotCopy& args) {
    const Variant& variant = rows_variant(runtime, "slot_copy");
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, "");
    Operation operation(runtime);
    const BoundSegment from = bind_segment(operation, args.from, Access::read);
    const BoundSegment to = bind_segment(operation, args.to, Access::read_write);
    slot_copy_params params{};
    params.from = from.params;
    params.to = to.params;
    params.k_bytes = row_bytes(args.to.k.type, args.to.k.shape[3]);
    params.v_bytes = row_bytes(args.to.v.type, args.to.v.shape[3]);
    params.k_size = static_cast<uint32_t>(args.to.k.shape[3]);
    params.v_size = static_cast<uint32_t>(args.to.v.shape[3]);
    params.parts = parts_of(variant, params.to.slots);
    const auto heads = static_cast<size_t>(args.to.kv_heads());
    operation.launch(kernel, params,
                     {from.k, from.v, from.tokens, from.importance, from.k_mean, from.v_mean, to.k, to.v, to.tokens,
                      to.importance, to.k_mean, to.v_mean},
                     Grid{.groups = {heads * params.parts, 1, 1},
                          .group_size = {variant.group_size, 1, 1},
                          .work = heads * params.from.slots * (params.k_bytes + params.v_bytes) / 4,
                          .bytes = 2 * (args.from.k.stored_bytes() + args.from.v.stored_bytes() +
                                        args.from.importance.stored_bytes()) +
                                   args.from.tokens.stored_bytes() + args.to.tokens.stored_bytes()});
    operation.complete(false);
}

} // namespace winnow::opencl
