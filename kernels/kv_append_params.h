/* The parameters of one kv_append launch, argument 0. Read by host (C++) and device (OpenCL C);
 * semantics in winnow.h (winnow_kv_append_desc).
 *
 * A side is K or V. Its rows, batch * heads * tokens of them with the token innermost, are cut into parts of
 * rows_per_group, one work-group each; the first k.groups groups work on K, the others on V. */
#pragma once

#include "tensor_view.h"

typedef struct kv_append_side {
    tensor_view src;
    tensor_view cache;
    tensor_view row_indices; /* a stride is 0 where they are broadcast; the third is not used */
    winnow_u32 batch, heads, tokens;
    winnow_u32 size;                     /* elements of a row */
    winnow_i64 slots;                    /* an index outside [0, slots) skips its row */
    winnow_u32 index_batch, index_heads; /* sizes of the indices' axes: the index is modulo */
    winnow_u32 src_type;                 /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    winnow_u32 index_type;               /* TYPE_I32 or TYPE_I64 */
    winnow_u32 groups;                   /* 0: the side is absent */
    winnow_u32 rows_per_group;
    winnow_u32 norm; /* WINNOW_NORM_*, for a turbo cache */
    winnow_u32 reserved;
} kv_append_side;

typedef struct kv_append_params {
    kv_append_side k, v;
} kv_append_params;

#define KV_APPEND_PARAMS_SIZE 304
#ifdef __OPENCL_VERSION__
typedef char kv_append_params_size_differs_from_the_host[sizeof(kv_append_params) == KV_APPEND_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(kv_append_params) == KV_APPEND_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
