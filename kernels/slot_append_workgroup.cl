/* slot_append, "workgroup" shape: a work-item takes a row of K or of V as slot_append.cl does, or where the segment's
 * format is dense 16 elements of one, side by side with the others of its group. Groups take rows as there.
 *
 * Layouts: slot_append_params.h. Needs the -D of slot_append.cl.
 */
#define GROUP_SIZE ROW_GROUP_SIZE
#include "slot_group.h"
#include "slot_append_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT)
#error "slot_append_workgroup.cl needs -D K_FORMAT and V_FORMAT"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_store_row.h"
#include "slot_append_places.h"
#include "row_pieces.h"

ONE_GROUP __kernel void slot_append(PARAMS(slot_append_params), const __global uchar* k_src,
                                    const __global uchar* v_src, __global uchar* k, __global uchar* v,
                                    __global uchar* tokens, __global uchar* importance, __global uchar* k_mean,
                                    __global uchar* v_mean, __global uchar* slots, const __global uchar* token_ids,
                                    __global uchar* positions, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_append_params);
    const uint group = (uint)get_group_id(0) + group_base;
    for (uint token = LANE; positions && group == 0 && token < p.tokens; token += GROUP_SIZE)
        ((__global int*)(positions + p.positions))[token_id_of(&p, token_ids, token)] = p.position + (int)token;
    const int is_k = group < p.k.groups;
    const uint size = is_k ? p.k.size : p.v.size, rows_per_group = is_k ? p.k.rows_per_group : p.v.rows_per_group;
    const uint at_once = is_k ? ELEMENTS_AT_ONCE(K_FORMAT, size) : ELEMENTS_AT_ONCE(V_FORMAT, size);
    const uint pieces = (size + at_once - 1) / at_once;
    const uint first_row = (is_k ? group : group - p.k.groups) * rows_per_group;
    const uint rows = min(rows_per_group, p.heads * p.tokens - first_row);
    for (uint piece = LANE; piece < rows * pieces; piece += GROUP_SIZE) {
        const uint row = first_row + piece / pieces, element = piece % pieces * at_once;
        const uint count = min(at_once, size - element);
        const uint token = row % p.tokens, head = row / p.tokens;
        const long slot = slot_of(&p, slots, head, token);
        if (slot < 0) continue;
        if (!is_k) {
            const __global float* mean = mean_of(v_mean, &p.segment.v_mean, head);
            store_v_row(v + row_offset(&p.segment.v, 0, head, slot) + element * V_ELEMENT_BYTES,
                        v_src + row_offset(&p.v.src, 0, head, token) + element * BYTES_OF_ELEMENT(p.v.src_type), 0,
                        mean ? mean + element : 0, p.v.src_type, count, p.v.norm);
            continue;
        }
        const __global float* mean = mean_of(k_mean, &p.segment.k_mean, head);
        store_k_row(k + row_offset(&p.segment.k, 0, head, slot) + element * K_ELEMENT_BYTES,
                    k_src + row_offset(&p.k.src, 0, head, token) + element * BYTES_OF_ELEMENT(p.k.src_type), 0,
                    mean ? mean + element : 0, p.k.src_type, count, p.k.norm);
        if (element > 0) continue;
        ((__global int*)of_head(tokens, &p.segment.tokens, head))[slot] = token_id_of(&p, token_ids, token);
        if (importance) ((__global float*)of_head(importance, &p.segment.importance, head))[slot] = 0.0f;
    }
}
