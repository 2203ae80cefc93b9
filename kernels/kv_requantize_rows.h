/* The kernel kv_requantize of any shape.
 *
 *     src  | row 0       | row 1       | ...        in place a row of dst begins where src's begins
 *     dst  | row 0 |     | row 1 |     | ...
 *
 * Layouts: kv_rows_params.h. Needs before it GROUP_SIZE, LANE and ONE_GROUP, and -D:
 *     SRC_FORMAT, DST_FORMAT
 *     USES_F   of each packed format F of the two
 *     SIZE     elements of a row, up to 576 where one of the formats is rotated, up to 4096 where one has its scales
 *              behind its codes (FORMAT_IN_ORDER_F is 0), which the row in place would be written over
 */
#include "kv_rows_params.h"

#if !defined(SRC_FORMAT) || !defined(DST_FORMAT)
#error "kv_requantize needs -D SRC_FORMAT and DST_FORMAT"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"
#define MAY_BE_IN_PLACE 1
#include "kv_move_row.h"

ONE_GROUP __kernel void kv_requantize(PARAMS(kv_rows_params), const __global uchar* src, __global uchar* dst,
                                      const __global uchar* row_indices, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(kv_rows_params);
    const uint first = ((uint)get_group_id(0) + group_base) * p.rows_per_group;
    const uint end = min(first + p.rows_per_group, p.batch * p.heads * p.rows);
    for (uint number = first + LANE; number < end; number += GROUP_SIZE) {
        const row_place at = row_place_of(number, p.heads, p.rows);
        const long index = row_index(row_indices, &p.row_indices, p.index_type, at.batch % p.index_batch,
                                     at.head % p.index_heads, at.row);
        if (index < 0 || index >= p.slots) continue;
        move_row(dst + row_offset(&p.dst, at.batch, at.head, index), src + row_offset(&p.src, at.batch, at.head, index),
                 p.size, p.norm);
    }
}
