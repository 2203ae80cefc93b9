/* kv_append: stores dense rows of K and V into a cache at given row indices, converting to the cache's formats; both
 * in one launch. "cpu" shape: one work-item per work-group, which takes some rows one after another.
 *
 *     groups   | K rows 0 .. n-1 | n .. 2n-1 | ... | V rows 0 .. n-1 | ...
 *
 * Layouts: kv_append_params.h. Needs -D:
 *     K_FORMAT, V_FORMAT   of the caches: f32, f16 or bf16
 */
#include "kv_append_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT)
#error "kv_append.cl needs -D K_FORMAT and V_FORMAT"
#endif

#include "format_f32.h"
#include "format_f16.h"
#include "format_bf16.h"
#include "format_any.h"

/* The number of the row where token's row goes, or what is outside the cache. */
static inline long row_index(const kv_append_side* side, const __global uchar* memory, uint batch, uint head,
                             uint token) {
    const __global uchar* indices = memory + side->row_indices.offset +
                                    (batch % side->index_batch) * side->row_indices.stride[0] +
                                    (head % side->index_heads) * side->row_indices.stride[1];
    return side->index_type == TYPE_I64 ? ((const __global long*)indices)[token]
                                        : ((const __global int*)indices)[token];
}

/* One side with the stores of its format. */
#define APPEND_ROWS(FORMAT)                                                                                            \
    static inline void JOIN(append_rows_, FORMAT)(const kv_append_side* side, const __global uchar* src_memory,        \
                                                  __global uchar* cache_memory, const __global uchar* index_memory,    \
                                                  uint group_number) {                                                 \
        const ulong rows = (ulong)side->batch * side->heads * side->tokens;                                            \
        const ulong first = (ulong)group_number * side->rows_per_group;                                                \
        const ulong end = min(first + side->rows_per_group, rows);                                                     \
        for (ulong number = first; number < end; ++number) {                                                           \
            const uint token = number % side->tokens;                                                                  \
            const uint head = number / side->tokens % side->heads;                                                     \
            const uint batch = number / side->tokens / side->heads;                                                    \
            const long index = row_index(side, index_memory, batch, head, token);                                      \
            if (index < 0 || index >= side->slots) continue;                                                           \
            const __global uchar* from = src_memory + side->src.offset + batch * side->src.stride[0] +                 \
                                         head * side->src.stride[1] + token * side->src.stride[2];                     \
            __global uchar* to = cache_memory + side->cache.offset + batch * side->cache.stride[0] +                   \
                                 head * side->cache.stride[1] + index * side->cache.stride[2];                         \
            uint i = 0;                                                                                                \
            for (; i + 16 <= side->size; i += 16) JOIN(store16_, FORMAT)(to, i, load16_any(from, side->src_type, i));  \
            for (; i < side->size; ++i) JOIN(store_, FORMAT)(to, i, load_any(from, side->src_type, i));                \
        }                                                                                                              \
    }

APPEND_ROWS(f32)
APPEND_ROWS(f16)
APPEND_ROWS(bf16)

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
kv_append(const kv_append_params p, const __global uchar* k_src, __global uchar* k_cache,
          const __global uchar* k_row_indices, const __global uchar* v_src, __global uchar* v_cache,
          const __global uchar* v_row_indices, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a rehearsal: the launch only makes the driver load the kernel */
    const uint group_number = (uint)get_group_id(0) + group_base;
    if (group_number < p.k.groups)
        JOIN(append_rows_, K_FORMAT)(&p.k, k_src, k_cache, k_row_indices, group_number);
    else
        JOIN(append_rows_, V_FORMAT)(&p.v, v_src, v_cache, v_row_indices, group_number - p.k.groups);
}
