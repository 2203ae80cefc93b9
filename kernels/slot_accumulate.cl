/* slot_accumulate: accumulates the scores of some query tokens into the importance of every slot, and adds up the
 * outputs. "cpu" shape: one work-item per work-group, whose vectors are 16 slots; a group takes one KV head and a part
 * of each segment.
 *
 *     groups   | head 0, range 0 | head 0, range 1 | ... | head 1, range 0 | ...      range 0 adds up the outputs
 *
 *     of BLOCK vectors, for each query:   x = sum over the query group, of the scores s
 *                                         I = keep I + gain x, where a head of the group sees the slot (s > -infinity)
 *
 * Layouts: slot_accumulate_params.h. Needs -D:
 *     STATISTIC      SCORE_MAGNITUDE, PROBABILITY, PROBABILITY_SQUARED or ABOVE_MEAN
 */
#include "one_work_item.h"
#include "slot_accumulate_params.h"
#include "slot_statistic.h"

/* Vectors at once: their chains of arithmetic overlap. */
#define BLOCK 4

#ifndef STATISTIC
#error "slot_accumulate.cl needs -D STATISTIC"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_outputs.h"

#define FLOATS float16
#define INTS int16
#define AS_FLOATS as_float16
#define AS_INTS as_int16
#include "slot_join_heads.h"

/* How many slots a query sees: counted through its whole row. */
static inline float slots_seen(const __global float* row, uint columns) {
    int16 seen = (int16)(0);
    for (uint slot = 0; slot < columns; slot += 16)
        seen -= load_floats(row + slot, columns - slot, -INFINITY) != -INFINITY;
    const int8 seen8 = seen.lo + seen.hi;
    const int4 seen4 = seen8.lo + seen8.hi;
    return (float)(seen4.x + seen4.y + seen4.z + seen4.w);
}

/* VECTORS vectors of 16 slots, a constant up to BLOCK; the first has column `first` of the scores, and in its lanes
 * below `skipped` nothing changes. */
__attribute__((always_inline)) static inline void
accumulate_slots(const slot_accumulate_params* p, const __global uchar* scores, const __global row_facts* facts,
                 __global float* importance, uint head, uint first, const uint VECTORS, const uint skipped) {
    float16 total[BLOCK];
#pragma unroll
    for (uint v = 0; v < VECTORS; ++v) total[v] = vload16(v, importance);
    for (uint query = 0; query < p->queries; ++query) {
        float16 x[BLOCK];
        int16 is_seen[BLOCK];
#pragma unroll
        for (uint v = 0; v < VECTORS; ++v) {
            x[v] = (float16)(0.0f);
            is_seen[v] = (int16)(0);
        }
        for (uint member = 0; member < p->group; ++member) {
            const __global float* row =
                (const __global float*)(scores + row_offset(&p->scores, 0, head * p->group + member, query)) + first;
            const row_facts known = facts[query * p->group + member];
#pragma unroll
            for (uint v = 0; v < VECTORS; ++v) {
                const float16 s = vload16(v, row);
                x[v] = join_head(x[v], s, known);
                is_seen[v] |= s != -INFINITY;
            }
        }
#pragma unroll
        for (uint v = 0; v < VECTORS; ++v)
            total[v] = select(total[v], accumulated(total[v], x[v], p->keep, p->gain), is_seen[v]);
    }
    if (skipped > 0) {
        const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
        total[0] = select(vload16(0, importance), total[0], lane >= (int16)((int)skipped));
    }
#pragma unroll
    for (uint v = 0; v < VECTORS; ++v) vstore16(total[v], v, importance);
}

/* Fewer than 16 slots. */
static inline void accumulate_few(const slot_accumulate_params* p, const __global uchar* scores,
                                  const __global row_facts* facts, __global float* importance, uint head, uint first,
                                  uint count) {
    float16 total = load_floats(importance, count, 0.0f);
    for (uint query = 0; query < p->queries; ++query) {
        float16 x = (float16)(0.0f);
        int16 is_seen = (int16)(0);
        for (uint member = 0; member < p->group; ++member) {
            const __global float* row =
                (const __global float*)(scores + row_offset(&p->scores, 0, head * p->group + member, query)) + first;
            const float16 s = load_floats(row, count, -INFINITY);
            x = join_head(x, s, facts[query * p->group + member]);
            is_seen |= s != -INFINITY;
        }
        total = select(total, accumulated(total, x, p->keep, p->gain), is_seen);
    }
    store_floats(importance, count, total);
}

/* The range of one work-group. */
OUT_OF_LINE static void accumulate(const slot_accumulate_params* p, const __global uchar* scores,
                                   const __global uchar* stats, const __global uchar* out, __global uchar* sum,
                                   __global uchar* importance_0, __global uchar* importance_1,
                                   __global uchar* importance_2, __global uchar* importance_3,
                                   __global row_facts* scratch, uint group_number) {
    const uint head = group_number / p->ranges;
    const uint range = group_number % p->ranges;
    if (out && range == 0)
        add_outputs((__global float*)of_head(sum, &p->sum, head), out, &p->out, p->out_type, head * p->group, p->group,
                    p->queries, p->v_size);
    __global row_facts* facts = scratch + group_number * p->group * p->queries;
    for (uint query = 0; query < p->queries; ++query)
        for (uint member = 0; member < p->group; ++member) {
            const uint q_head = head * p->group + member;
            const __global float* row = (const __global float*)(scores + row_offset(&p->scores, 0, q_head, query));
            facts[query * p->group + member] =
                facts_of((const __global float*)(stats + row_offset(&p->stats, 0, q_head, query)),
                         STATISTIC == ABOVE_MEAN ? slots_seen(row, p->columns) : 0.0f);
        }
    for (uint i = 0; i < p->segment_count; ++i) {
        const slot_columns* segment = &p->segments[i];
        __global uchar* memory = i == 0 ? importance_0 : i == 1 ? importance_1 : i == 2 ? importance_2 : importance_3;
        __global float* importance = (__global float*)of_head(memory, &segment->values, head);
        const uint vectors = segment->slots / 16;
        /* A segment that is not worth cutting is all in the first range. */
        const uint ranges = vectors < p->ranges ? 1 : p->ranges;
        if (range >= ranges) continue;
        if (vectors == 0) {
            accumulate_few(p, scores, facts, importance, head, segment->first, segment->slots);
            continue;
        }
        const uint end = (uint)((ulong)vectors * (range + 1) / ranges) * 16;
        uint slot = (uint)((ulong)vectors * range / ranges) * 16;
        for (; slot + BLOCK * 16 <= end; slot += BLOCK * 16)
            accumulate_slots(p, scores, facts, importance + slot, head, segment->first + slot, BLOCK, 0);
        /* The last vector begins early, so that it is whole: what it shares with the one before is done already. */
        const uint last = range + 1 == ranges ? segment->slots : end;
        for (; slot < last; slot += 16) {
            const uint from = min(slot, last - 16);
            accumulate_slots(p, scores, facts, importance + from, head, segment->first + from, 1, slot - from);
        }
    }
}

ONE_WORK_ITEM __kernel void slot_accumulate(PARAMS(slot_accumulate_params), const __global uchar* scores,
                                            const __global uchar* stats, const __global uchar* out, __global uchar* sum,
                                            __global uchar* importance_0, __global uchar* importance_1,
                                            __global uchar* importance_2, __global uchar* importance_3,
                                            __global row_facts* scratch, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_accumulate_params);
    accumulate(&p, scores, stats, out, sum, importance_0, importance_1, importance_2, importance_3, scratch,
               (uint)get_group_id(0) + group_base);
}
