/* slot_compact, "workgroup" shape, in two launches. What it does is said in slot_compact.cl.
 *
 *     slot_compact        a group for each KV head finds out which slots get which rows, 16 slots to a work-item, and
 *                         changes slot map and importance
 *     slot_compact_move   a group for each KV head and part of that plan moves rows, side by side
 *
 * Layouts: slot_compact_params.h. Needs no -D.
 */
#include "slot_group.h"
#include "slot_compact_params.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_group_rows.h"

static inline __global uint* plan_of(const slot_compact_params* p, __global uchar* plans, uint head) {
    return (__global uint*)plans + (ulong)head * SLOT_COMPACT_PLAN(p->segment.slots);
}

#define TO_ROWS(plan) ((plan) + 1)
#define FROM_ROWS(plan, slots) ((plan) + 2 + SLOT_COMPACT_MOVES(slots))

ALWAYS_INLINE uint count_live(const __global int* map, uint slots, __local group_sums* sums) {
    uint live = 0;
    for (uint slot = LANE; slot < slots; slot += GROUP_SIZE) live += map[slot] >= 0;
    return sum_of_group(sums, live);
}

/* Below `live` a slot's flag is that it is free, from there on that it is not: each list has the flagged slots of its
 * half in their order. Returns how long both are. */
ALWAYS_INLINE uint make_plan(const __global int* map, uint slots, uint live, __global uint* to_rows,
                             __global uint* from_rows, __local group_sums* sums) {
    uint to_count = 0, from_count = 0;
    for (uint tile = 0; tile < slots; tile += SLOTS_AT_ONCE) {
        const uint first = tile + LANE * SLOTS_OF_LANE, end = min(first + SLOTS_OF_LANE, slots);
        uint flags = 0;
        for (uint slot = first; slot < end; ++slot) flags |= (uint)((map[slot] < 0) == (slot < live)) << (slot - first);
        /* Those below `live` are the first so many of the flags. */
        const uint below = first < live ? min(live - first, (uint)SLOTS_OF_LANE) : 0;
        const uint to_flags = flags & ((1u << below) - 1), from_flags = flags & ~((1u << below) - 1);
        uint of_tile;
        const uint before = sum_before(sums, popcount(to_flags) | popcount(from_flags) << 16, &of_tile);
        uint to = to_count + (before & 0xffffu), from = from_count + (before >> 16);
        for (uint i = 0; i < SLOTS_OF_LANE; ++i) {
            if (to_flags >> i & 1) to_rows[to++] = first + i;
            if (from_flags >> i & 1) from_rows[from++] = first + i;
        }
        to_count += of_tile & 0xffffu;
        from_count += of_tile >> 16;
    }
    return to_count;
}

ONE_GROUP __kernel void slot_compact(PARAMS(slot_compact_params), __global uchar* tokens, __global uchar* importance,
                                     __global uchar* state, __global uchar* plans, uint group_base) {
    __local group_sums sums;
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_compact_params);
    const uint head = (uint)get_group_id(0) + group_base, slots = p.segment.slots;
    __global int* map = (__global int*)of_head(tokens, &p.segment.tokens, head);
    __global float* weights = (__global float*)of_head(importance, &p.segment.importance, head);
    __global uint* plan = plan_of(&p, plans, head);
    __global uint *to_rows = TO_ROWS(plan), *from_rows = FROM_ROWS(plan, slots);
    const uint live = count_live(map, slots, &sums);
    const uint moves = make_plan(map, slots, live, to_rows, from_rows, &sums);
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (uint i = LANE; i < moves; i += GROUP_SIZE) {
        const uint to = to_rows[i], from = from_rows[i];
        map[to] = map[from];
        map[from] = FREE_SLOT;
        if (importance) weights[to] = weights[from];
    }
    if (LANE > 0) return;
    plan[0] = moves;
    ((__global int*)of_head(state, &p.state, head))[0] = (int)live;
}

ONE_GROUP __kernel void slot_compact_move(PARAMS(slot_compact_params), __global uchar* k, __global uchar* v,
                                          __global uchar* plans, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_compact_params);
    const uint group = (uint)get_group_id(0) + group_base, head = group / p.parts, part = group % p.parts;
    const __global uint* plan = plan_of(&p, plans, head);
    const uint moves = plan[0];
    const uint first = (uint)((ulong)moves * part / p.parts), end = (uint)((ulong)moves * (part + 1) / p.parts);
    if (first == end) return;
    __global uchar* k_rows = k + row_offset(&p.segment.k, 0, head, 0);
    __global uchar* v_rows = v + row_offset(&p.segment.v, 0, head, 0);
    const long k_stride = p.segment.k.stride[2], v_stride = p.segment.v.stride[2];
    const __global uint *to = TO_ROWS(plan) + first, *from = FROM_ROWS(plan, p.segment.slots) + first;
    const moved_rows of_k = {k_rows, k_rows, k_stride, k_stride, to, from, end - first, (uint)p.k_bytes};
    const moved_rows of_v = {v_rows, v_rows, v_stride, v_stride, to, from, end - first, (uint)p.v_bytes};
    move_rows_of_bytes(of_k);
    move_rows_of_bytes(of_v);
}
