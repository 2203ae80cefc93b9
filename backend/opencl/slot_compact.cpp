// From winnow::SlotCompact to launches of slot_compact: one, or one that plans and one whose groups move parts of that.
#include "opencl/launchers.hpp"

#include "opencl/kv_rows.hpp"
#include "opencl/slot_segment.hpp"
#include "slot_compact_params.h"

namespace winnow::opencl {

void launch(Runtime& runtime, const SlotCompact& args) {
    // Where all rows behind a gap move, one has to be away before the next one takes its place.
    const Variant& variant = rows_variant(runtime, "slot_compact", args.keeps_order ? "cpu" : "");
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, "");
    Operation operation(runtime);
    const BoundSegment segment = bind_segment(operation, args.segment, Access::read_write);
    const Bound state = operation.bind(args.head_state, Access::read_write);
    slot_compact_params params{};
    params.segment = segment.params;
    params.keeps_order = args.keeps_order;
    params.state = view_of_heads(args.head_state, state);
    params.k_bytes = row_bytes(args.segment.k.type, args.segment.k.shape[3]);
    params.v_bytes = row_bytes(args.segment.v.type, args.segment.v.shape[3]);
    const auto heads = static_cast<size_t>(args.segment.kv_heads());
    const uint64_t bytes = heads * params.segment.slots * (params.k_bytes + params.v_bytes);
    if (variant.slots_of_group == 0) {
        operation.launch(kernel, params, {segment.k, segment.v, segment.tokens, segment.importance, state.memory},
                         Grid{.groups = {heads, 1, 1}, .work = bytes / 4, .bytes = args.segment.tokens.stored_bytes()});
    } else {
        params.parts = parts_of(variant, SLOT_COMPACT_MOVES(params.segment.slots));
        Kernel& move = runtime.kernel(variant.file, "slot_compact_move", "");
        const Memory* plans =
            runtime.scratch(heads * SLOT_COMPACT_PLAN(params.segment.slots) * sizeof(uint32_t), slot_scratch);
        Grid grid{.groups = {heads, 1, 1},
                  .group_size = {variant.group_size, 1, 1},
                  .bytes = args.segment.tokens.stored_bytes()};
        operation.launch(kernel, params, {segment.tokens, segment.importance, state.memory, plans}, grid);
        grid.groups[0] *= params.parts;
        grid.work = bytes / 4;
        grid.bytes = grid.groups[0] * sizeof(uint32_t); // each looks how many rows move
        operation.launch(move, params, {segment.k, segment.v, plans}, grid);
    }
    operation.complete(false);
}

} // namespace winnow::opencl
