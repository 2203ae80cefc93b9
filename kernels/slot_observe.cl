/* slot_observe: folds the scores of some query tokens into the importance of every slot, and adds up the outputs. "cpu"
 * shape: one work-item per work-group, whose vectors are 16 slots; a group takes one KV head and a part of each store.
 *
 *     groups   | head 0, range 0 | head 0, range 1 | ... | head 1, range 0 | ...      range 0 adds up the outputs
 *
 *     of 64 slots, for each query:   x = over the query group, from the scores s and the row's maximum and sum
 *                                    I = keep I + gain x, where a head of the group sees the slot (s > -infinity)
 *
 * Layouts: slot_observe_params.h. Needs -D:
 *     STATISTIC      SCORE_MAGNITUDE, PROBABILITY, PROBABILITY_SQUARED or ABOVE_MEAN
 *     IS_MAXIMUM     over the query group: 1 the maximum, 0 the mean
 */
#include "slot_observe_params.h"

#define SCORE_MAGNITUDE 1
#define PROBABILITY 2
#define PROBABILITY_SQUARED 3
#define ABOVE_MEAN 4

#if !defined(STATISTIC) || !defined(IS_MAXIMUM)
#error "slot_observe.cl needs -D STATISTIC and IS_MAXIMUM"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "kv_rows.h"
#include "slot_parts.h"

/* What a query head knows of its row. A row that sees nothing has the maximum -infinity; with 0 in its place, its
 * exponentials are 0. */
typedef struct row_facts {
    float maximum;
    float inverse; /* 1 / sum */
    float bound;   /* ABOVE_MEAN: the exponential of a probability of 1 / (slots seen) */
} row_facts;

/* Of ABOVE_MEAN. The slots that a query sees are counted through its whole row. */
static inline float mean_exponential(const __global float* row, uint columns, float sum) {
    int16 seen = (int16)(0);
    for (uint slot = 0; slot < columns; slot += 16)
        seen -= load_floats(row + slot, columns - slot, -INFINITY) != -INFINITY;
    const int8 seen8 = seen.lo + seen.hi;
    const int4 seen4 = seen8.lo + seen8.hi;
    const int count = seen4.x + seen4.y + seen4.z + seen4.w;
    return count == 0 ? INFINITY : sum / (float)count;
}

static inline row_facts facts_of(const __global float* stats, float bound) {
    row_facts facts;
    facts.maximum = stats[0] == -INFINITY ? 0.0f : stats[0];
    facts.inverse = stats[1] == 0.0f ? 0.0f : 1.0f / stats[1];
    facts.bound = bound;
    return facts;
}

/* One head's scores joined with what the heads before it gave; NaN stays. */
static inline float16 join_head(float16 x, float16 s, const row_facts* facts) {
#if STATISTIC == SCORE_MAGNITUDE
    const float16 seen = select(s, (float16)(0.0f), s == -INFINITY);
    const float16 y = IS_MAXIMUM ? fabs(seen) : seen;
#else
    const float16 e = exp16(s - facts->maximum);
#if STATISTIC == ABOVE_MEAN
    const float16 y = select((float16)(0.0f), (float16)(1.0f), e >= facts->bound);
#else
    const float16 p = e * facts->inverse;
    const float16 y = STATISTIC == PROBABILITY_SQUARED ? p * p : p;
#endif
#endif
    return IS_MAXIMUM ? select(x, y, (y > x) | isnan(y)) : x + y;
}

/* `vectors` vectors of 16 slots from column `first` of the scores on; `count` lanes where those are fewer. */
static inline void observe_slots(const slot_observe_params* p, const __global uchar* scores,
                                 const __global uchar* stats, const __global float* bounds, __global float* importance,
                                 uint head, uint first, const uint vectors, const uint count) {
    float16 total[4];
#pragma unroll
    for (uint v = 0; v < vectors; ++v) total[v] = load_floats(importance + v * 16, count, 0.0f);
    for (uint query = 0; query < p->queries; ++query) {
        float16 x[4];
        int16 is_seen[4];
#pragma unroll
        for (uint v = 0; v < vectors; ++v) {
            x[v] = (float16)(0.0f);
            is_seen[v] = (int16)(0);
        }
        for (uint member = 0; member < p->group; ++member) {
            const uint q_head = head * p->group + member;
            const __global float* row =
                (const __global float*)(scores + row_offset(&p->scores, 0, q_head, query)) + first;
            const __global float* row_stats = (const __global float*)(stats + row_offset(&p->stats, 0, q_head, query));
            const row_facts facts =
                facts_of(row_stats, STATISTIC == ABOVE_MEAN ? bounds[member * p->queries + query] : 0.0f);
#pragma unroll
            for (uint v = 0; v < vectors; ++v) {
                const float16 s = load_floats(row + v * 16, count, -INFINITY);
                x[v] = join_head(x[v], s, &facts);
                is_seen[v] |= s != -INFINITY;
            }
        }
#pragma unroll
        for (uint v = 0; v < vectors; ++v) {
            const float16 y = STATISTIC == SCORE_MAGNITUDE ? fabs(x[v]) : x[v];
            total[v] = select(total[v], fma(total[v], (float16)(p->keep), y * p->gain), is_seen[v]);
        }
    }
#pragma unroll
    for (uint v = 0; v < vectors; ++v) store_floats(importance + v * 16, count, total[v]);
}

/* The outputs of the query group and the observed queries onto the head's sum. */
static inline void add_outputs(const slot_observe_params* p, const __global uchar* out, __global uchar* sum,
                               uint head) {
    __global float* to = (__global float*)of_head(sum, &p->sum, head);
    for (uint i = 0; i < p->v_size; i += 16) {
        const uint count = min(p->v_size - i, 16u);
        float16 total = load_floats(to + i, count, 0.0f);
        for (uint member = 0; member < p->group; ++member)
            for (uint query = 0; query < p->queries; ++query) {
                const __global uchar* row = out + row_offset(&p->out, 0, head * p->group + member, query);
                if (count == 16) {
                    total += load16_any(row, p->out_type, i);
                    continue;
                }
                float lanes[16] = {0.0f};
                for (uint lane = 0; lane < count; ++lane) lanes[lane] = load_any(row, p->out_type, i + lane);
                total += vload16(0, lanes);
            }
        store_floats(to + i, count, total);
    }
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
slot_observe(const slot_observe_params p, const __global uchar* scores, const __global uchar* stats,
             const __global uchar* out, __global uchar* sum, __global uchar* importance_0,
             __global uchar* importance_1, __global uchar* importance_2, __global uchar* importance_3,
             __global float* scratch, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a rehearsal: the launch only makes the driver load the kernel */
    const uint group_number = (uint)get_group_id(0) + group_base;
    const uint head = group_number / p.ranges;
    const uint range = group_number % p.ranges;
    if (out && range == 0) add_outputs(&p, out, sum, head);
    __global float* bounds = scratch + group_number * p.group * p.queries;
#if STATISTIC == ABOVE_MEAN
    for (uint member = 0; member < p.group; ++member)
        for (uint query = 0; query < p.queries; ++query) {
            const uint q_head = head * p.group + member;
            bounds[member * p.queries + query] = mean_exponential(
                (const __global float*)(scores + row_offset(&p.scores, 0, q_head, query)), p.columns,
                ((const __global float*)(stats + row_offset(&p.stats, 0, q_head, query)))[1]);
        }
#endif
    for (uint i = 0; i < p.store_count; ++i) {
        const slot_observe_store* store = &p.stores[i];
        __global uchar* memory = i == 0 ? importance_0 : i == 1 ? importance_1 : i == 2 ? importance_2 : importance_3;
        __global float* importance = (__global float*)of_head(memory, &store->importance, head);
        const uint vectors = (store->slots + 15) / 16;
        const uint end = min((uint)((ulong)vectors * (range + 1) / p.ranges) * 16, store->slots);
        uint slot = (uint)((ulong)vectors * range / p.ranges) * 16;
        for (; slot + 64 <= end; slot += 64)
            observe_slots(&p, scores, stats, bounds, importance + slot, head, store->first + slot, 4, 16);
        for (; slot < end; slot += 16)
            observe_slots(&p, scores, stats, bounds, importance + slot, head, store->first + slot, 1, end - slot);
    }
}
