/* The kernel hadamard of any shape.
 *
 * Layouts: hadamard_params.h. Needs before it GROUP_SIZE, LANE and ONE_GROUP, and -D:
 *     SIZE   elements of a row, a multiple of 16 up to 576
 */
#include "hadamard_params.h"

#ifndef SIZE
#error "hadamard needs -D SIZE"
#endif

#include "float16_math.h"
#include "format_f32.h"
#include "format_f16.h"
#include "format_bf16.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"

OUT_OF_LINE static void rotate_row(const hadamard_params* p, __global uchar* to, const __global uchar* from) {
    float16 x[SIZE / 16];
    for (uint c = 0; c < SIZE / 16; ++c) x[c] = load16_any(from, p->src_type, c * 16);
    if (p->inverse)
        rotate_back(x, SIZE);
    else
        rotate(x, SIZE);
    for (uint c = 0; c < SIZE / 16; ++c) store16_any(to, p->dst_type, c * 16, x[c]);
}

ONE_GROUP __kernel void hadamard(PARAMS(hadamard_params), const __global uchar* src, __global uchar* dst,
                                 uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(hadamard_params);
    const uint first = ((uint)get_group_id(0) + group_base) * p.rows_per_group;
    const uint end = min(first + p.rows_per_group, p.batch * p.heads * p.rows);
    for (uint number = first + LANE; number < end; number += GROUP_SIZE) {
        const row_place at = row_place_of(number, p.heads, p.rows);
        rotate_row(&p, dst + row_offset(&p.dst, at.batch, at.head, at.row),
                   src + row_offset(&p.src, at.batch, at.head, at.row));
    }
}
