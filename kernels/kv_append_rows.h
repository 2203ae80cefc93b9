/* The kernel kv_append of any shape.
 *
 *     groups   | K rows 0 .. n-1 | n .. 2n-1 | ... | V rows 0 .. n-1 | ...
 *
 * Layouts: kv_append_params.h. Needs before it GROUP_SIZE, LANE and ONE_GROUP, and -D:
 *     K_FORMAT, V_FORMAT   of the caches
 *     USES_F               of each packed format F of the two
 *     K_SIZE, V_SIZE       elements of a row, up to 576, where the side's format is rotated
 */
#include "kv_append_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT)
#error "kv_append needs -D K_FORMAT and V_FORMAT"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"
#include "row_pieces.h"

#define ROW_PARAMETERS __global uchar *to, const __global uchar *from, uint type, uint size, uint norm
#define ROW_LOAD16(i) load16_any(from, type, i)
#define ROW_LOAD(i) load_any(from, type, i)
#include "kv_store_row.h"

/* One group's rows of a side. */
#define APPEND_ROWS(name, store_row, FORMAT, element_bytes)                                                            \
    static inline void name(const kv_append_side* side, const __global uchar* src, __global uchar* cache,              \
                            const __global uchar* indices, uint group_number) {                                        \
        const uint first = group_number * side->rows_per_group;                                                        \
        const uint rows = min(side->rows_per_group, side->batch * side->heads * side->tokens - first);                 \
        const uint at_once = GROUP_SIZE == 1u ? side->size : ELEMENTS_AT_ONCE(FORMAT, side->size);                     \
        const uint pieces = GROUP_SIZE == 1u ? 1u : (side->size + at_once - 1) / at_once;                              \
        for (uint piece = LANE; piece < rows * pieces; piece += GROUP_SIZE) {                                          \
            const uint element = piece % pieces * at_once;                                                             \
            const row_place at = row_place_of(first + piece / pieces, side->heads, side->tokens);                      \
            const long index = row_index(indices, &side->row_indices, side->index_type, at.batch % side->index_batch,  \
                                         at.head % side->index_heads, at.row);                                         \
            if (index < 0 || index >= side->slots) continue;                                                           \
            store_row(cache + row_offset(&side->cache, at.batch, at.head, index) + element * (element_bytes),          \
                      src + row_offset(&side->src, at.batch, at.head, at.row) +                                        \
                          element * BYTES_OF_ELEMENT(side->src_type),                                                  \
                      side->src_type, min(at_once, side->size - element), side->norm);                                 \
        }                                                                                                              \
    }

APPEND_ROWS(append_k_rows, store_k_row, K_FORMAT, K_ELEMENT_BYTES)
APPEND_ROWS(append_v_rows, store_v_row, V_FORMAT, V_ELEMENT_BYTES)

ONE_GROUP __kernel void kv_append(PARAMS(kv_append_params), const __global uchar* k_src, __global uchar* k_cache,
                                  const __global uchar* k_row_indices, const __global uchar* v_src,
                                  __global uchar* v_cache, const __global uchar* v_row_indices, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(kv_append_params);
    const uint group_number = (uint)get_group_id(0) + group_base;
    if (group_number < p.k.groups)
        append_k_rows(&p.k, k_src, k_cache, k_row_indices, group_number);
    else
        append_v_rows(&p.v, v_src, v_cache, v_row_indices, group_number - p.k.groups);
}
