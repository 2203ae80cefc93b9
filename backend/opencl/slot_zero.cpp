// From winnow::SlotZero to two launches of slot_zero: what each range of slots adds up to, and what is below that.
#include "opencl/launchers.hpp"

#include <algorithm>

#include "opencl/kv_rows.hpp"
#include "opencl/slot_segment.hpp"
#include "opencl/view.hpp"
#include "slot_zero_params.h"

namespace winnow::opencl {
namespace {

constexpr int64_t slots_of_a_range = 128; // is worth the start of its group
constexpr uint64_t bytes_of_sums = 16;

// TYPE_NONE of a side that stays as it is.
uint32_t type_of(const Tensor& rows, double scale) {
    return rows && scale > 0 && !is_packed(rows.type) ? static_cast<uint32_t>(rows.type) : TYPE_NONE;
}

} // namespace

void launch(Runtime& runtime, const SlotZero& args) {
    const Variant& variant = rows_variant(runtime, "slot_zero");
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, "");
    if (args.segments.size() > SLOT_MOST_SEGMENTS)
        throw Error(WINNOW_ERROR_UNSUPPORTED, "slot_zero: up to " + std::to_string(SLOT_MOST_SEGMENTS) +
                                                  " segments are supported, given are " +
                                                  std::to_string(args.segments.size()));
    Operation operation(runtime);
    slot_zero_params params{};
    std::array<const Memory*, 3 * SLOT_MOST_SEGMENTS> memory{};
    uint64_t bytes = 0;
    for (const Segment& segment : args.segments) {
        const uint32_t k_type = type_of(segment.k, args.k_scale), v_type = type_of(segment.v, args.v_scale);
        if (!segment.tokens || (k_type == TYPE_NONE && v_type == TYPE_NONE)) continue; // no slots, or none to zero
        const uint32_t part = params.part_count++;
        const Bound k = operation.bind(segment.k, Access::read_write),
                    v = operation.bind(segment.v, Access::read_write),
                    tokens = operation.bind(segment.tokens, Access::read);
        bytes += (k_type != TYPE_NONE ? segment.k.stored_bytes() : 0) +
                 (v_type != TYPE_NONE ? segment.v.stored_bytes() : 0) + segment.tokens.stored_bytes();
        memory.at(3 * part) = k.memory;
        memory.at(3 * part + 1) = v.memory;
        memory.at(3 * part + 2) = tokens.memory;
        params.parts[part] = {{view(segment.k, k), view(segment.v, v)},
                              view_of_heads(segment.tokens, tokens),
                              {k_type, v_type},
                              params.slots,
                              static_cast<uint32_t>(segment.slots())};
        params.slots += static_cast<uint32_t>(segment.slots());
        params.heads = static_cast<uint32_t>(segment.kv_heads());
        params.sizes[0] = static_cast<uint32_t>(segment.k.shape[3]);
        params.sizes[1] = static_cast<uint32_t>(segment.v.shape[3]);
    }
    if (params.slots == 0) return;
    const Bound positions = operation.bind(args.positions, Access::read);
    params.positions = positions.offset;
    params.scales[0] = static_cast<float>(args.k_scale);
    params.scales[1] = static_cast<float>(args.v_scale);
    params.sink = static_cast<int32_t>(std::min<int64_t>(args.sink, anchor_flag));
    const int64_t wanted = 2 * static_cast<int64_t>(runtime.capabilities().compute_units) / params.heads + 1;
    params.ranges = static_cast<uint32_t>(std::clamp<int64_t>(params.slots / slots_of_a_range, 1, wanted));
    const size_t groups = 2 * static_cast<size_t>(params.heads * params.ranges);
    const Memory* const sums = runtime.scratch(groups * bytes_of_sums, slot_scratch);
    const uint64_t elements = static_cast<uint64_t>(params.slots) * params.heads * (params.sizes[0] + params.sizes[1]);
    for (const uint32_t action : {SLOT_ZERO_ADD_UP, SLOT_ZERO_ZERO}) {
        params.action = action;
        operation.launch(
            kernel, params,
            {memory[0], memory[1], memory[2], memory[3], memory[4], memory[5], memory[6], memory[7], memory[8],
             memory[9], memory[10], memory[11], positions.memory, sums},
            Grid{.groups = {groups, 1, 1}, .group_size = {variant.group_size, 1, 1}, .work = elements, .bytes = bytes});
    }
    operation.complete(false);
}

} // namespace winnow::opencl
