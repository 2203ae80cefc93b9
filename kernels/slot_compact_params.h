/* The parameters of one slot_compact launch, argument 0. Read by host (C++) and device (OpenCL C);
 * semantics in backend/device/slots.hpp (SlotCompact). A work-group for each KV head; of slot_compact_move one for
 * each KV head and one of `parts` parts of its plan. */
#pragma once

#include "slot_segment_params.h"

/* A head's plan, in numbers: how many rows move, the slots to which they do, and in its second half those from which.
 */
#define SLOT_COMPACT_MOVES(slots) (((slots) + 1) / 2)
#define SLOT_COMPACT_PLAN(slots) (2 * (SLOT_COMPACT_MOVES(slots) + 1))

typedef struct slot_compact_params {
    slot_segment segment;
    head_view state;             /* [kv_heads][4] int: HeadState */
    winnow_u64 k_bytes, v_bytes; /* of a row */
    winnow_u32 parts;            /* 0: there is no plan, rows move at once */
    winnow_u32 keeps_order;      /* of live slots; there is no plan then */
} slot_compact_params;

#define SLOT_COMPACT_PARAMS_SIZE 184
#ifdef __OPENCL_VERSION__
typedef char
    slot_compact_params_size_differs_from_the_host[sizeof(slot_compact_params) == SLOT_COMPACT_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_compact_params) == SLOT_COMPACT_PARAMS_SIZE,
              "host and device must agree on the struct's size");
#endif
