/* slot_copy, "workgroup" shape: a group for each KV head and part of the slots, whose rows its work-items copy side by
 * side. What it does is said in slot_copy.cl.
 *
 *     groups   | head 0, slots 0 .. n-1 | n .. 2n-1 | ... | head 1 ...      the first of a head copies the means, too
 *
 * Layouts: slot_copy_params.h. Needs no -D.
 */
#include "slot_group.h"
#include "slot_copy_params.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_group_rows.h"

/* Rows [first, end) of one side. */
ALWAYS_INLINE void copy_rows(__global uchar* to, const tensor_view* to_view, const __global uchar* from,
                             const tensor_view* from_view, uint head, uint first, uint end, uint bytes) {
    const moved_rows moved = {to + row_offset(to_view, 0, head, first),
                              from + row_offset(from_view, 0, head, first),
                              to_view->stride[2],
                              from_view->stride[2],
                              0,
                              0,
                              end - first,
                              bytes};
    move_rows_of_bytes(moved);
}

/* Elements [first, end); what the destination alone has is 0. */
ALWAYS_INLINE void copy_floats(__global uchar* to, const head_view* to_view, const __global uchar* from,
                               const head_view* from_view, uint head, uint first, uint end) {
    if (!to) return;
    __global float* there = (__global float*)of_head(to, to_view, head);
    const __global float* here = (const __global float*)(from + from_view->offset + (long)head * from_view->stride);
    for (uint i = first + LANE; i < end; i += GROUP_SIZE) there[i] = from ? here[i] : 0.0f;
}

ONE_GROUP __kernel void slot_copy(PARAMS(slot_copy_params), __global uchar* from_k, __global uchar* from_v,
                                  __global uchar* from_tokens, __global uchar* from_importance,
                                  __global uchar* from_k_mean, __global uchar* from_v_mean, __global uchar* to_k,
                                  __global uchar* to_v, __global uchar* to_tokens, __global uchar* to_importance,
                                  __global uchar* to_k_mean, __global uchar* to_v_mean, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_copy_params);
    const uint group = (uint)get_group_id(0) + group_base, head = group / p.parts, part = group % p.parts;
    const uint first = (uint)((ulong)p.to.slots * part / p.parts),
               end = (uint)((ulong)p.to.slots * (part + 1) / p.parts);
    const uint slots = p.from.slots, first_row = min(first, slots), end_row = min(end, slots);
    if (first_row < end_row) {
        copy_rows(to_k, &p.to.k, from_k, &p.from.k, head, first_row, end_row, (uint)p.k_bytes);
        copy_rows(to_v, &p.to.v, from_v, &p.from.v, head, first_row, end_row, (uint)p.v_bytes);
    }
    const __global int* here = (const __global int*)of_head(from_tokens, &p.from.tokens, head);
    __global int* there = (__global int*)of_head(to_tokens, &p.to.tokens, head);
    for (uint slot = first + LANE; slot < end; slot += GROUP_SIZE) there[slot] = slot < slots ? here[slot] : FREE_SLOT;
    copy_floats(to_importance, &p.to.importance, from_importance, &p.from.importance, head, first_row, end_row);
    if (part > 0) return;
    copy_floats(to_k_mean, &p.to.k_mean, from_k_mean, &p.from.k_mean, head, 0, p.k_size);
    copy_floats(to_v_mean, &p.to.v_mean, from_v_mean, &p.from.v_mean, head, 0, p.v_size);
}
