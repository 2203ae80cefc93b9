/* The parameters of one slot_append launch, argument 0. Read by host (C++) and device (OpenCL C);
 * semantics in backend/device/slots.hpp (SlotAppend).
 *
 * The rows of a side, kv_heads * tokens of them with the token innermost, are cut into parts of rows_per_group, one
 * work-group each; the first k.groups groups work on K, the others on V. */
#pragma once

#include "slot_segment_params.h"

typedef struct slot_append_side {
    tensor_view src;     /* [1, kv_heads, tokens, size] */
    winnow_u32 size;     /* elements of a row */
    winnow_u32 src_type; /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    winnow_u32 norm;     /* WINNOW_NORM_* */
    winnow_u32 groups, rows_per_group;
    winnow_u32 reserved;
} slot_append_side;

typedef struct slot_append_params {
    slot_append_side k, v;
    slot_segment segment;
    head_view slots;                 /* [kv_heads][tokens] int; the pointer is NULL without */
    winnow_u64 token_ids;            /* offset of [tokens] int; the pointer is NULL without */
    winnow_u64 positions;            /* offset of int by token id: its position; the pointer is NULL without */
    winnow_i64 first, count, offset; /* without slots token t goes to first + (offset + t) % count */
    winnow_i32 token_id;             /* of token 0; without token_ids the others follow it */
    winnow_i32 position;             /* of token 0 */
    winnow_u32 heads, tokens;
} slot_append_params;

#define SLOT_APPEND_PARAMS_SIZE 328
#ifdef __OPENCL_VERSION__
typedef char slot_append_size_differs_from_the_host[sizeof(slot_append_params) == SLOT_APPEND_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_append_params) == SLOT_APPEND_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
