/* slot_accumulate, "workgroup" shape: a group for each KV head and part of every segment's slots, a work-item for each
 * slot, which takes the queries one after another as slot_accumulate.cl does. The first group of a head adds up
 * outputs.
 *
 * Layouts: slot_accumulate_params.h. Needs the -D of slot_accumulate.cl.
 */
#include "slot_group.h"
#include "slot_accumulate_params.h"
#include "slot_statistic.h"

#ifndef STATISTIC
#error "slot_accumulate_workgroup.cl needs -D STATISTIC"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "kv_rows.h"
#include "slot_parts.h"

#define FLOATS float
#define INTS int
#define AS_FLOATS as_float
#define AS_INTS as_int
#include "slot_join_heads.h"

static inline const __global float* row_of(const slot_accumulate_params* p, const __global uchar* scores, uint q_head,
                                           uint query) {
    return (const __global float*)(scores + row_offset(&p->scores, 0, q_head, query));
}

/* The facts of a row of the query group: query i / group of its head i % group. */
static inline row_facts facts_of_row(const slot_accumulate_params* p, const __global uchar* stats, uint head, uint i,
                                     float seen) {
    const uint q_head = head * p->group + i % p->group;
    return facts_of((const __global float*)(stats + row_offset(&p->stats, 0, q_head, i / p->group)), seen);
}

/* Those of all its rows. facts: [queries][group]. */
ALWAYS_INLINE void make_facts(const slot_accumulate_params* p, const __global uchar* scores,
                              const __global uchar* stats, __global row_facts* facts, uint head,
                              __local group_sums* sums) {
    const uint rows = p->queries * p->group;
#if STATISTIC == ABOVE_MEAN
    for (uint i = 0; i < rows; ++i) {
        const __global float* row = row_of(p, scores, head * p->group + i % p->group, i / p->group);
        uint seen = 0;
        for (uint column = LANE; column < p->columns; column += GROUP_SIZE) seen += row[column] != -INFINITY;
        seen = sum_of_group(sums, seen);
        if (LANE == 0) facts[i] = facts_of_row(p, stats, head, i, (float)seen);
    }
#else
    for (uint i = LANE; i < rows; i += GROUP_SIZE) facts[i] = facts_of_row(p, stats, head, i, 0.0f);
#endif
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* What the queries make of one slot's importance; `column` is its place in the scores. */
static inline float accumulate_slot(const slot_accumulate_params* p, const __global uchar* scores,
                                    const __global row_facts* facts, float importance, uint head, uint column) {
    for (uint query = 0; query < p->queries; ++query) {
        float x = 0.0f;
        int is_seen = 0;
        for (uint member = 0; member < p->group; ++member) {
            const float s = row_of(p, scores, head * p->group + member, query)[column];
            x = join_head(x, s, facts[query * p->group + member]);
            is_seen |= s != -INFINITY;
        }
        importance = is_seen ? accumulated(importance, x, p->keep, p->gain) : importance;
    }
    return importance;
}

/* The outputs of the query group, in the order of heads and queries. */
ALWAYS_INLINE void add_outputs(const slot_accumulate_params* p, __global float* sum, const __global uchar* out,
                               uint head) {
    for (uint e = LANE; e < p->v_size; e += GROUP_SIZE) {
        float total = sum[e];
        for (uint q_head = head * p->group; q_head < (head + 1) * p->group; ++q_head)
            for (uint query = 0; query < p->queries; ++query)
                total += load_any(out + row_offset(&p->out, 0, q_head, query), p->out_type, e);
        sum[e] = total;
    }
}

ONE_GROUP __kernel void slot_accumulate(PARAMS(slot_accumulate_params), const __global uchar* scores,
                                        const __global uchar* stats, const __global uchar* out, __global uchar* sum,
                                        __global uchar* importance_0, __global uchar* importance_1,
                                        __global uchar* importance_2, __global uchar* importance_3,
                                        __global row_facts* scratch, uint group_base) {
    __local group_sums sums;
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_accumulate_params);
    const uint group_number = (uint)get_group_id(0) + group_base;
    const uint head = group_number / p.ranges, range = group_number % p.ranges;
    __global row_facts* facts = scratch + group_number * p.group * p.queries;
    make_facts(&p, scores, stats, facts, head, &sums);
    for (uint i = 0; i < p.segment_count; ++i) {
        const uint first = p.segments[i].first, slots = p.segments[i].slots;
        __global uchar* memory = i == 0 ? importance_0 : i == 1 ? importance_1 : i == 2 ? importance_2 : importance_3;
        __global float* importance = (__global float*)of_head(memory, &p.segments[i].values, head);
        for (uint slot = range * GROUP_SIZE + LANE; slot < slots; slot += p.ranges * GROUP_SIZE)
            importance[slot] = accumulate_slot(&p, scores, facts, importance[slot], head, first + slot);
    }
    if (out && range == 0) add_outputs(&p, (__global float*)of_head(sum, &p.sum, head), out, head);
}
