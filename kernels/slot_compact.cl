/* slot_compact: brings each head's live slots to the front, in place. With n of them live, the i-th free slot below n
 * gets what lies in the i-th live slot from n on; or all keep their order. Rows move as bytes. "cpu" shape: one
 * work-item per work-group, a group for each KV head.
 *
 *     slot map  | 4 | -1 | 6 | -1 | 2 | 9 |      n = 4  ->  | 4 | 2 | 6 | 9 | -1 | -1 |  or  | 4 | 6 | 2 | 9 | - | - |
 *
 * Layouts: slot_compact_params.h. Needs no -D.
 */
#include "one_work_item.h"
#include "slot_compact_params.h"
#include "kv_rows.h"
#include "slot_parts.h"

ONE_WORK_ITEM __kernel void slot_compact(PARAMS(slot_compact_params), __global uchar* k, __global uchar* v,
                                         __global uchar* tokens, __global uchar* importance, __global uchar* state,
                                         uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_compact_params);
    const uint head = (uint)get_group_id(0) + group_base;
    __global int* map = (__global int*)of_head(tokens, &p.segment.tokens, head);
    __global float* weights = (__global float*)of_head(importance, &p.segment.importance, head);
    uint live = 0;
    for (uint slot = 0; slot < p.segment.slots; ++slot) live += map[slot] >= 0;
    uint from = p.keeps_order ? 0 : live;
    for (uint to = 0; to < live; ++to) {
        if (map[to] >= 0) continue;
        from = max(from, to);
        while (map[from] < 0) ++from;
        copy_bytes(k + row_offset(&p.segment.k, 0, head, to), k + row_offset(&p.segment.k, 0, head, from), p.k_bytes);
        copy_bytes(v + row_offset(&p.segment.v, 0, head, to), v + row_offset(&p.segment.v, 0, head, from), p.v_bytes);
        map[to] = map[from];
        map[from] = FREE_SLOT;
        if (importance) weights[to] = weights[from];
    }
    ((__global int*)of_head(state, &p.state, head))[0] = (int)live;
}
