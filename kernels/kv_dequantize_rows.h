/* The kernel kv_dequantize of any shape.
 *
 * Layouts: kv_rows_params.h. Needs before it GROUP_SIZE, LANE and ONE_GROUP, and -D:
 *     SRC_FORMAT   of the cache
 *     DST_FORMAT   f32, f16 or bf16
 *     USES_F       of src's format F, where it is packed
 *     SIZE         elements of a row, up to 576, where src's format is rotated
 */
#include "kv_rows_params.h"

#if !defined(SRC_FORMAT) || !defined(DST_FORMAT)
#error "kv_dequantize needs -D SRC_FORMAT and DST_FORMAT"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"
#define MAY_BE_IN_PLACE 0
#include "kv_move_row.h"

static inline void zero_row(__global uchar* row, uint size) {
    for (uint i = 0; i < size; ++i) JOIN(store_, DST_FORMAT)(row, i, 0.0f);
}

ONE_GROUP __kernel void kv_dequantize(PARAMS(kv_rows_params), const __global uchar* src, __global uchar* dst,
                                      const __global uchar* row_indices, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(kv_rows_params);
    const uint first = ((uint)get_group_id(0) + group_base) * p.rows_per_group;
    const uint end = min(first + p.rows_per_group, p.batch * p.heads * p.rows);
    for (uint number = first + LANE; number < end; number += GROUP_SIZE) {
        const row_place at = row_place_of(number, p.heads, p.rows);
        const long index = row_index(row_indices, &p.row_indices, p.index_type, at.batch % p.index_batch,
                                     at.head % p.index_heads, at.row);
        __global uchar* to = dst + row_offset(&p.dst, at.batch, at.head, at.row);
        if (index < 0 || index >= p.slots)
            zero_row(to, p.size);
        else
            move_row(to, src + row_offset(&p.src, at.batch, at.head, index), p.size, p.norm);
    }
}
