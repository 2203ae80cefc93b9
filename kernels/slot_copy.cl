/* slot_copy: a segment into the first slots of another one that has the same formats; the other's remaining slots
 * become free. Rows are copied as bytes, with slot map, importance and means. "cpu" shape: one work-item per
 * work-group, a group for each KV head.
 *
 *     from  | 4 | -1 | 6 |      ->  to  | 4 | -1 | 6 | -1 | -1 |
 *
 * Layouts: slot_copy_params.h. Needs no -D.
 */
#include "one_work_item.h"
#include "slot_copy_params.h"
#include "kv_rows.h"
#include "slot_parts.h"

/* What the destination alone has is 0. */
static inline void copy_floats(__global uchar* to, const head_view* to_view, __global uchar* from,
                               const head_view* from_view, uint head, uint count) {
    if (!to) return;
    __global float* there = (__global float*)of_head(to, to_view, head);
    const __global float* here = (const __global float*)of_head(from, from_view, head);
    for (uint i = 0; i < count; ++i) there[i] = from ? here[i] : 0.0f;
}

/* One KV head. */
OUT_OF_LINE static void copy_head(const slot_copy_params* p, __global uchar* from_k, __global uchar* from_v,
                                  __global uchar* from_tokens, __global uchar* from_importance,
                                  __global uchar* from_k_mean, __global uchar* from_v_mean, __global uchar* to_k,
                                  __global uchar* to_v, __global uchar* to_tokens, __global uchar* to_importance,
                                  __global uchar* to_k_mean, __global uchar* to_v_mean, uint head) {
    const uint slots = p->from.slots;
    for (uint slot = 0; slot < slots; ++slot) {
        copy_bytes(to_k + row_offset(&p->to.k, 0, head, slot), from_k + row_offset(&p->from.k, 0, head, slot),
                   p->k_bytes);
        copy_bytes(to_v + row_offset(&p->to.v, 0, head, slot), from_v + row_offset(&p->from.v, 0, head, slot),
                   p->v_bytes);
    }
    const __global int* here = (const __global int*)of_head(from_tokens, &p->from.tokens, head);
    __global int* there = (__global int*)of_head(to_tokens, &p->to.tokens, head);
    for (uint slot = 0; slot < p->to.slots; ++slot) there[slot] = slot < slots ? here[slot] : FREE_SLOT;
    copy_floats(to_importance, &p->to.importance, from_importance, &p->from.importance, head, slots);
    copy_floats(to_k_mean, &p->to.k_mean, from_k_mean, &p->from.k_mean, head, p->k_size);
    copy_floats(to_v_mean, &p->to.v_mean, from_v_mean, &p->from.v_mean, head, p->v_size);
}

ONE_WORK_ITEM __kernel void slot_copy(PARAMS(slot_copy_params), __global uchar* from_k, __global uchar* from_v,
                                      __global uchar* from_tokens, __global uchar* from_importance,
                                      __global uchar* from_k_mean, __global uchar* from_v_mean, __global uchar* to_k,
                                      __global uchar* to_v, __global uchar* to_tokens, __global uchar* to_importance,
                                      __global uchar* to_k_mean, __global uchar* to_v_mean, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_copy_params);
    copy_head(&p, from_k, from_v, from_tokens, from_importance, from_k_mean, from_v_mean, to_k, to_v, to_tokens,
              to_importance, to_k_mean, to_v_mean, (uint)get_group_id(0) + group_base);
}
