/* slot_append: stores dense rows of K and V into slots, converting to the segment's formats, and enters the tokens into
 * the slot map with an importance of 0; all in one launch. "cpu" shape: one work-item per work-group, which takes some
 * rows one after another. The groups of K write map and importance, too.
 *
 *     groups   | K rows 0 .. n-1 | n .. 2n-1 | ... | V rows 0 .. n-1 | ...
 *
 * Layouts: slot_append_params.h. Needs -D:
 *     K_FORMAT, V_FORMAT   of the segment
 *     USES_F               of each packed format F of the two
 *     K_SIZE, V_SIZE       elements of a row, up to 576, where the side's format is rotated
 */
#include "one_work_item.h"
#include "slot_append_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT)
#error "slot_append.cl needs -D K_FORMAT and V_FORMAT"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_store_row.h"
#include "slot_append_places.h"

/* The rows of one work-group. */
OUT_OF_LINE static void append_rows(const slot_append_params* p, const __global uchar* k_src,
                                    const __global uchar* v_src, __global uchar* k, __global uchar* v,
                                    __global uchar* tokens, __global uchar* importance, __global uchar* k_mean,
                                    __global uchar* v_mean, __global uchar* slots, const __global uchar* token_ids,
                                    __global uchar* positions, uint group_number) {
    for (uint token = 0; positions && group_number == 0 && token < p->tokens; ++token)
        ((__global int*)(positions + p->positions))[token_id_of(p, token_ids, token)] = p->position + (int)token;
    const int is_k = group_number < p->k.groups;
    const uint rows_per_group = is_k ? p->k.rows_per_group : p->v.rows_per_group;
    const uint first = (is_k ? group_number : group_number - p->k.groups) * rows_per_group;
    const uint end = min(first + rows_per_group, p->heads * p->tokens);
    for (uint row = first; row < end; ++row) {
        const uint token = row % p->tokens;
        const uint head = row / p->tokens;
        const long slot = slot_of(p, slots, head, token);
        if (slot < 0) continue;
        if (!is_k) {
            store_v_row(v + row_offset(&p->segment.v, 0, head, slot), v_src + row_offset(&p->v.src, 0, head, token), 0,
                        mean_of(v_mean, &p->segment.v_mean, head), p->v.src_type, p->v.size, p->v.norm);
            continue;
        }
        store_k_row(k + row_offset(&p->segment.k, 0, head, slot), k_src + row_offset(&p->k.src, 0, head, token), 0,
                    mean_of(k_mean, &p->segment.k_mean, head), p->k.src_type, p->k.size, p->k.norm);
        ((__global int*)of_head(tokens, &p->segment.tokens, head))[slot] = token_id_of(p, token_ids, token);
        if (importance) ((__global float*)of_head(importance, &p->segment.importance, head))[slot] = 0.0f;
    }
}

ONE_WORK_ITEM __kernel void slot_append(PARAMS(slot_append_params), const __global uchar* k_src,
                                        const __global uchar* v_src, __global uchar* k, __global uchar* v,
                                        __global uchar* tokens, __global uchar* importance, __global uchar* k_mean,
                                        __global uchar* v_mean, __global uchar* slots, const __global uchar* token_ids,
                                        __global uchar* positions, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_append_params);
    append_rows(&p, k_src, v_src, k, v, tokens, importance, k_mean, v_mean, slots, token_ids, positions,
                (uint)get_group_id(0) + group_base);
}
