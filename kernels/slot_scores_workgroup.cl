/* slot_scores, "workgroup" shape: a group for each row (a query of a query head), a work-item for each slot. What it
 * does is said in slot_scores.cl. Layouts: slot_scores_params.h. Needs no -D.
 */
#include "slot_group.h"
#include "slot_scores_params.h"
#include "kv_rows.h"
#include "slot_parts.h"

ONE_GROUP __kernel void slot_scores(PARAMS(slot_scores_params), const __global uchar* scores, __global uchar* out,
                                    __global uchar* tokens_0, __global uchar* tokens_1, __global uchar* tokens_2,
                                    __global uchar* tokens_3, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_scores_params);
    const uint row = (uint)get_group_id(0) + group_base, q_head = row / p.queries, query = row % p.queries;
    const __global float* from = (const __global float*)(scores + row_offset(&p.scores, 0, q_head, query));
    __global float* to = (__global float*)(out + row_offset(&p.out, 0, q_head, query));
    for (uint column = LANE; column < p.columns && !p.keeps_others; column += GROUP_SIZE) to[column] = -INFINITY;
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (uint i = 0; i < p.segment_count; ++i) {
        const uint first = p.segments[i].first, slots = p.segments[i].slots;
        __global uchar* memory = i == 0 ? tokens_0 : i == 1 ? tokens_1 : i == 2 ? tokens_2 : tokens_3;
        const __global int* map = (const __global int*)of_head(memory, &p.segments[i].values, q_head / p.group);
        for (uint slot = LANE; slot < slots; slot += GROUP_SIZE) {
            const int entry = map[slot];
            const uint token_id = (uint)entry & (ANCHOR_FLAG - 1);
            if (entry >= 0 && token_id < p.columns) to[token_id] = from[first + slot];
        }
    }
}
