/* slot_scores: scores in the order of slots become scores in the order of token ids, -infinity where no slot has
 * the token id. "cpu" shape: one work-item per work-group, which takes some rows (a query of a query head) one after
 * another.
 *
 *     slot map  | 4 | -1 | 0 |        scores  | a | . | b |   ->   out  | b | -inf | -inf | -inf | a |
 *
 * Layouts: slot_scores_params.h. Needs no -D.
 */
#include "one_work_item.h"
#include "slot_scores_params.h"
#include "kv_rows.h"
#include "slot_parts.h"

ONE_WORK_ITEM __kernel void slot_scores(PARAMS(slot_scores_params), const __global uchar* scores, __global uchar* out,
                                        __global uchar* tokens_0, __global uchar* tokens_1, __global uchar* tokens_2,
                                        __global uchar* tokens_3, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_scores_params);
    const uint first_row = ((uint)get_group_id(0) + group_base) * p.rows_per_group;
    const uint end_row = min(first_row + p.rows_per_group, p.rows);
    for (uint row = first_row; row < end_row; ++row) {
        const uint q_head = row / p.queries;
        const uint query = row % p.queries;
        const __global float* from = (const __global float*)(scores + row_offset(&p.scores, 0, q_head, query));
        __global float* to = (__global float*)(out + row_offset(&p.out, 0, q_head, query));
        for (uint column = 0; column < p.columns && !p.keeps_others; column += 16)
            store_floats(to + column, p.columns - column, (float16)(-INFINITY));
        for (uint i = 0; i < p.segment_count; ++i) {
            const slot_columns* segment = &p.segments[i];
            __global uchar* memory = i == 0 ? tokens_0 : i == 1 ? tokens_1 : i == 2 ? tokens_2 : tokens_3;
            const __global int* map = (const __global int*)of_head(memory, &segment->values, q_head / p.group);
            for (uint slot = 0; slot < segment->slots; ++slot) {
                const uint token_id = (uint)map[slot] & (ANCHOR_FLAG - 1);
                if (map[slot] >= 0 && token_id < p.columns) to[token_id] = from[segment->first + slot];
            }
        }
    }
}
