/* The parameters of one hadamard launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in winnow.h (winnow_hadamard_desc).
 *
 * The rows, batch * heads * rows of them with the row innermost, are cut into parts of rows_per_group, one
 * work-group each. */
#pragma once

#include "tensor_view.h"

typedef struct hadamard_params {
    tensor_view src;
    tensor_view dst;
    winnow_u32 batch, heads, rows; /* the axes before a row's elements */
    winnow_u32 src_type, dst_type;  /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    winnow_u32 inverse;             /* 0 or 1 */
    winnow_u32 rows_per_group;
    winnow_u32 reserved;
} hadamard_params;

#define HADAMARD_PARAMS_SIZE 96
#ifdef __OPENCL_VERSION__
typedef char hadamard_params_size_differs_from_the_host[sizeof(hadamard_params) == HADAMARD_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(hadamard_params) == HADAMARD_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
