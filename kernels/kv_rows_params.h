/* The parameters of one launch of kv_requantize or kv_dequantize, argument 0. Read by host (C++) and
 * device (OpenCL C); semantics in winnow.h (winnow_kv_requantize_desc, winnow_kv_dequantize_desc).
 *
 * The rows, batch * heads * rows of them with the row innermost, are cut into parts of rows_per_group, one work-group
 * each. */
#pragma once

#include "tensor_view.h"

typedef struct kv_rows_params {
    tensor_view src;
    tensor_view dst;
    tensor_view row_indices; /* the third stride is not used */
    winnow_i64 slots;        /* rows of src */
    winnow_u32 batch, heads, rows;
    winnow_u32 size;                     /* elements of a row */
    winnow_u32 index_batch, index_heads; /* sizes of the indices' axes: the index is modulo */
    winnow_u32 index_type;               /* TYPE_I32 or TYPE_I64; TYPE_NONE: row i is row i */
    winnow_u32 norm;                     /* WINNOW_NORM_*, for a turbo dst */
    winnow_u32 rows_per_group;
    winnow_u32 reserved;
} kv_rows_params;

#define KV_ROWS_PARAMS_SIZE 144
#ifdef __OPENCL_VERSION__
typedef char kv_rows_params_size_differs_from_the_host[sizeof(kv_rows_params) == KV_ROWS_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(kv_rows_params) == KV_ROWS_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
