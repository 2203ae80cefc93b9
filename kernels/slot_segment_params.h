/* A segment of slots as kernels see it: rows of K and V, the slot map and the importance beside them, the means that
 * rows are stored less (backend/device/slots.hpp). Read by host (C++) and device (OpenCL C). */
#pragma once

#include "tensor_view.h"

/* An entry of a slot map: negative where the slot is free, else the token id, and the flag of an anchor. */
#define FREE_SLOT (-1)
#define ANCHOR_FLAG (1 << 30)

/* What has one run of elements for each KV head: that of head g begins at offset + g * stride. In bytes. */
typedef struct head_view {
    winnow_u64 offset;
    winnow_i64 stride;
} head_view;

typedef struct slot_segment {
    tensor_view k, v;
    head_view tokens;          /* [kv_heads][slots] int: the slot map */
    head_view importance;      /* [kv_heads][slots] float; absent: the pointer is NULL, as with the means */
    head_view k_mean;          /* [kv_heads][k_size] float */
    head_view v_mean;          /* [kv_heads][v_size] float */
    winnow_u32 slots;          /* of each head */
    winnow_u32 k_type, v_type; /* the numbers of WINNOW_TYPE_* */
    winnow_u32 reserved;
} slot_segment;

/* What a launch over several segments takes of one: its slot map or its importance, and its columns of the scores. */
#define SLOT_MOST_SEGMENTS 4
typedef struct slot_columns {
    head_view values; /* [kv_heads][slots], int or float */
    winnow_u32 first; /* the segment's first column of the scores */
    winnow_u32 slots;
} slot_columns;

#define SLOT_SEGMENT_SIZE 144
#ifdef __OPENCL_VERSION__
typedef char slot_segment_size_differs_from_the_host[sizeof(slot_segment) == SLOT_SEGMENT_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_segment) == SLOT_SEGMENT_SIZE, "host and device must agree on the struct's size");
#endif
