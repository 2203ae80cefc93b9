// From winnow::SlotEdit to launches of slot_edit, one for each segment.
#include "opencl/launchers.hpp"

#include <algorithm>
#include <limits>

#include "opencl/kv_rows.hpp"
#include "opencl/slot_segment.hpp"
#include "slot_edit_params.h"

namespace winnow::opencl {
namespace {

static_assert(static_cast<uint32_t>(SlotEdit::Action::free) == SLOT_EDIT_FREE);
static_assert(static_cast<uint32_t>(SlotEdit::Action::shift) == SLOT_EDIT_SHIFT);
static_assert(static_cast<uint32_t>(SlotEdit::Action::anchor) == SLOT_EDIT_ANCHOR);
static_assert(free_slot == FREE_SLOT && anchor_flag == ANCHOR_FLAG);

// No token id is as large.
int32_t bound_of(int64_t token_id) { return static_cast<int32_t>(std::clamp<int64_t>(token_id, 0, anchor_flag)); }

} // namespace

void launch(Runtime& runtime, const SlotEdit& args) {
    const Variant& variant = rows_variant(runtime, "slot_edit");
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, "");
    Operation operation(runtime);
    slot_edit_params params{};
    params.begin = bound_of(args.begin);
    params.end = bound_of(args.end);
    params.delta = static_cast<int32_t>(args.delta);
    params.action = static_cast<uint32_t>(args.action);
    for (const Segment& segment : args.segments) {
        if (!segment.tokens) continue;
        const Bound tokens = operation.bind(segment.tokens, Access::read_write);
        params.tokens = view_of_heads(segment.tokens, tokens);
        params.slots = static_cast<uint32_t>(segment.slots());
        const auto heads = static_cast<size_t>(segment.kv_heads());
        params.parts = parts_of(variant, params.slots);
        operation.launch(kernel, params, {tokens.memory},
                         Grid{.groups = {heads * params.parts, 1, 1},
                              .group_size = {variant.group_size, 1, 1},
                              .work = heads * params.slots / 8,
                              .bytes = segment.tokens.stored_bytes()});
    }
    operation.complete(false);
}

} // namespace winnow::opencl
