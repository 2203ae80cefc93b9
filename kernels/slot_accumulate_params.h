/* The parameters of one slot_accumulate launch, argument 0. Read by host (C++) and device (OpenCL C);
 * semantics in backend/device/slots.hpp (SlotAccumulate).
 *
 * A work-group takes one KV head and one of `ranges` equal parts of every segment's slots. */
#pragma once

#include "slot_segment_params.h"

typedef struct slot_accumulate_params {
    tensor_view scores;                        /* [1, q_heads, q_len, columns] float, biased */
    tensor_view stats;                         /* [1, q_heads, q_len, 2] float */
    tensor_view out;                           /* [1, q_heads, q_len, v_size]; the pointer is NULL without */
    head_view sum;                             /* [kv_heads][v_size] float */
    slot_columns segments[SLOT_MOST_SEGMENTS]; /* the importance */
    winnow_u32 segment_count;
    winnow_u32 group;   /* query heads of a KV head */
    winnow_u32 queries; /* that count: the first so many */
    winnow_u32 columns; /* slots of all segments */
    winnow_u32 ranges;
    winnow_u32 out_type; /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    winnow_u32 v_size;   /* elements of a row of out */
    winnow_f32 keep;     /* I <- keep I + gain x for each query that sees the slot, x summed over the query group ... */
    winnow_f32 gain;     /* ... so that the gain has the 1 / group of a mean */
    winnow_u32 reserved;
} slot_accumulate_params;

#define SLOT_ACCUMULATE_PARAMS_SIZE 248
#ifdef __OPENCL_VERSION__
typedef char slot_accumulate_params_size_differs_from_the_host
    [sizeof(slot_accumulate_params) == SLOT_ACCUMULATE_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_accumulate_params) == SLOT_ACCUMULATE_PARAMS_SIZE,
              "host and device must agree on the struct's size");
#endif
