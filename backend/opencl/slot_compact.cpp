// From winnow::SlotCompact to a launch of slot_compact.
#include "opencl/launchers.hpp"

#include "opencl/slot_segment.hpp"
#include "opencl/variants.hpp"
#include "slot_compact_params.h"

namespace winnow::opencl {

void launch(Runtime& runtime, const SlotCompact& args) {
    const Variant& variant = choose_variant("slot_compact", runtime.capabilities(), {}, 0, 0);
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, "");
    Operation operation(runtime);
    const BoundSegment segment = bind_segment(operation, args.segment, Access::read_write);
    const Bound state = operation.bind(args.head_state, Access::read_write);
    slot_compact_params params{};
    params.segment = segment.params;
    params.state = view_of_heads(args.head_state, state);
    params.k_bytes = row_bytes(args.segment.k.type, args.segment.k.shape[3]);
    params.v_bytes = row_bytes(args.segment.v.type, args.segment.v.shape[3]);
    const auto heads = static_cast<size_t>(args.segment.kv_heads());
    operation.launch(
        kernel, params, {segment.k, segment.v, segment.tokens, segment.importance, state.memory},
        Grid{.groups = {heads, 1, 1}, .work = heads * params.segment.slots * (params.k_bytes + params.v_bytes) / 4});
    operation.complete(false);
}

} // namespace winnow::opencl
