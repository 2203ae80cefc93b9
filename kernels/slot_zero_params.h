/* The parameters of one slot_zero launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in backend/device/slots.hpp (SlotZero). Sides: 0 is K, 1 is V. Slots are numbered through all parts. A group for each
 * side, KV head and range of slots. */
#pragma once

#include "slot_segment_params.h"

/* What a launch does: adds up what each range has, or zeroes by what all ranges of a head have. */
#define SLOT_ZERO_ADD_UP 0
#define SLOT_ZERO_ZERO 1

/* A segment. */
typedef struct slot_zero_part {
    tensor_view rows[2];
    head_view tokens;    /* [kv_heads][slots] int: the slot map */
    winnow_u32 types[2]; /* TYPE_*; TYPE_NONE: the side is packed, and stays as it is */
    winnow_u32 first;    /* the number of its first slot */
    winnow_u32 slots;
} slot_zero_part;

typedef struct slot_zero_params {
    slot_zero_part parts[SLOT_MOST_SEGMENTS];
    winnow_u64 positions; /* int, of each token id; absent: the pointer is NULL */
    winnow_f32 scales[2];
    winnow_u32 sizes[2]; /* elements of a row */
    winnow_i32 sink;
    winnow_u32 part_count;
    winnow_u32 slots; /* of all parts */
    winnow_u32 heads;
    winnow_u32 ranges; /* of a side of a head */
    winnow_u32 action; /* SLOT_ZERO_* */
} slot_zero_params;

#define SLOT_ZERO_PARAMS_SIZE 432
#ifdef __OPENCL_VERSION__
typedef char slot_zero_params_size_differs_from_the_host[sizeof(slot_zero_params) == SLOT_ZERO_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_zero_params) == SLOT_ZERO_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
