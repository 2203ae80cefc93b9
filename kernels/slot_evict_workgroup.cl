/* slot_evict, "workgroup" shape: a group of many work-items for each KV head. What it does, in the same steps, is said
 * in slot_evict.cl; a key or a slot is a work-item's, rows that move are each K or V of a token, and the victims' bound
 * is found with counts in local memory (slot_group_select.h).
 *
 *     moving rows   | K of row 0 | K of row 1 | ... | V of row 0 | V of row 1 | ...      half a group for each
 *
 * Layouts: slot_evict_params.h. Needs the -D of slot_evict.cl.
 */
#include "slot_group.h"
#include "slot_evict_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT)
#error "slot_evict_workgroup.cl needs -D K_FORMAT and V_FORMAT"
#endif

#ifndef TIERS
#define TIERS 1
#endif
#define KEY_RUNS (1 + TIERS)

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_store_row.h"
#include "ordered_bits.h"
#include "slot_keys.h"
#include "slot_head.h"
#include "slot_values.h"
#include "slot_packed_values.h"
#include "slot_tier_rows.h"
#include "slot_group_select.h"
#include "slot_group_evict.h"

/* The bound of an eviction pass: as many victims as the budget requires, and as many as free the slots of packed
 * segments that the leaving rows need and that are wanted free. */
ALWAYS_INLINE slot_bound bound_of_pass(const slot_evict_params* p, const head_slots* dense, const head_slots* packed,
                                       __global ulong* leaving_keys, const head_counts* counts, uint packed_live,
                                       slot_demand wanted, __local select_state* s) {
    const slot_keys all = keys_of(dense, packed);
    long victims = min((long)counts->preferred, max(wanted.required, wanted.allowed));
    if (victims < wanted.required) victims += min((long)counts->others, wanted.required - victims);
    const slot_bound required = smallest_slots(&all, (uint)victims, s);

    /* A victim in a packed segment or among the leaving rows frees a slot for one of these. */
    slot_keys frees_slots = all;
    frees_slots.run[0] = leaving_keys;
    long needed = p->wanted_free + (long)take_leaving_keys(p, dense, leaving_keys, s) + packed_live;
    for (uint t = 0; t < TIERS; ++t) needed -= packed[t].slots;
    if (needed <= (long)count_within(&frees_slots, required, s)) return required;
    if (needed > (long)count_below(&frees_slots, NO_CANDIDATE, s)) {
        const slot_bound all_candidates = {NO_CANDIDATE - 1, 0xffffffffu};
        return all_candidates;
    }
    return later_bound(required, smallest_slots(&frees_slots, (uint)needed, s));
}

/* Of the importances, as the pass asks for it; *rest: what a float leaves of it. */
ALWAYS_INLINE float threshold_of_head(const slot_evict_params* p, const head_slots* dense, const head_slots* packed,
                                      float* rest, __local select_state* s) {
    *rest = 0.0f;
    if (!p->pass.has_threshold) return 0.0f;
    uint live = make_importance_keys(dense, s), at, equal;
    for (uint t = 0; t < TIERS; ++t) live += make_importance_keys(packed + t, s);
    barrier(CLK_GLOBAL_MEM_FENCE);
    float quantile = -INFINITY;
    if (live > 0) {
        const slot_keys all = keys_of(dense, packed);
        quantile = from_ordered_bits((uint)smallest_key(&all, quantile_rank(&p->pass, live), &at, &equal, s));
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return threshold_of(&p->pass, quantile, rest);
}

/* What values are compared with. */
ALWAYS_INLINE void make_points(const slot_evict_params* p, const head_slots* dense, const head_slots* packed,
                               const __global float* sum) {
    if (p->pass.ranking != RANKING_IMPORTANCE_VALUE_DISTANCE) return;
    compare_values(dense->point, sum, p->outputs, dense->v_mean, p->v_size);
    for (uint t = 0; t < TIERS; ++t) compare_values(packed[t].point, sum, p->outputs, packed[t].v_mean, p->v_size);
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (LANE < TIERS) rotate_point_of(packed + LANE);
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* The pass of one KV head. scratch: memory of the head's (slot_evict_params.h). */
ALWAYS_INLINE void evict_of_head(const slot_evict_params* p, head_slots dense, head_slots* packed, __global float* sum,
                                 const __global int* positions, const __global float* network,
                                 __global uchar* free_slots, __global uchar* states, __global uchar* scratch, uint head,
                                 __local select_state* s) {
    const slot_eviction* pass = &p->pass;
    __global ulong* leaving_keys = place_keys(p, &dense, packed, scratch);
    const slot_lists lists = lists_of(p, scratch);

    if (p->set_means && packed->k_mean)
        set_mean(p, &dense, dense.k, dense.k_stride, p->dense.k_type, p->k_size, dense.k_mean, packed->k_mean, s);
    if (p->set_means && packed->v_mean)
        set_mean(p, &dense, dense.v, dense.v_stride, p->dense.v_type, p->v_size, dense.v_mean, packed->v_mean, s);

    float rest;
    const float threshold = threshold_of_head(p, &dense, packed, &rest, s);
    make_points(p, &dense, packed, sum);
    head_counts counts = {0, 0, 0};
    make_keys(p, &dense, positions, network, head, threshold, rest, &counts, s);
    const uint dense_live = counts.live;
    for (uint t = 0; t < TIERS; ++t) make_keys(p, packed + t, positions, network, head, threshold, rest, &counts, s);
    const slot_demand wanted = demand_of(pass, counts.live);
    const slot_bound bound =
        bound_of_pass(p, &dense, packed, leaving_keys, &counts, counts.live - dense_live, wanted, s);

    uint gone = free_within(&dense, bound, 0, s), first = in_whole_vectors(dense.slots);
    for (uint t = 0; t < TIERS; ++t) {
        gone += free_within(packed + t, bound, first, s);
        first += in_whole_vectors(packed[t].slots);
    }
#if TIERS > 1
    make_room_in_tiers(p, &dense, packed, leaving_keys, row_of_lane(p, &dense), lists, s);
#endif
    const slot_bound none = {0, 0};
    const uint leaving = list_leaving(p, &dense, 0, none, lists.moving, s);
    const uint free = list_free(packed, leaving + p->free_count, lists.free, s);
    const uint homeless = move_rows(p, &dense, packed, lists, leaving, free);
    if (free_slots) {
        __global int* list = (__global int*)of_head(free_slots, &p->free_slots, head);
        for (uint i = LANE; i < p->free_count; i += GROUP_SIZE)
            list[i] = leaving + i < free ? (int)lists.free[leaving + i] : FREE_SLOT;
    }
    for (uint i = LANE; sum && i < p->v_size; i += GROUP_SIZE) sum[i] = 0.0f;
    /* Where rows found no room, no slot is free. */
    const long lacking = homeless + (p->wanted_free > 0 ? (long)p->wanted_free - (long)count_free(packed, s) : 0L);
    if (LANE > 0) return;
    __global int* state = (__global int*)of_head(states, &p->state, head);
    state[0] = (int)(counts.live - gone - homeless);
    state[1] += (int)(gone + homeless);
    state[2] = (int)max(max(wanted.required - (long)gone, 0L), lacking);
}

ONE_GROUP __kernel void slot_evict(PARAMS(slot_evict_params), EVICT_ARGUMENTS) {
    __local select_state s;
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_evict_params);
    const uint head = (uint)get_group_id(0) + group_base;
    PUT_HEADS
    evict_of_head(&p, dense, packed, floats_of(output_sum, &p.output_sum, head),
                  positions_of ? (const __global int*)(positions_of + p.positions) : 0, network_of(&p, networks, head),
                  free_slots, states, scratch + head * p.scratch_bytes, head, &s);
}
