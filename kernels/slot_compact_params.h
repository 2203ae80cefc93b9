/* The parameters of one slot_compact launch, argument 0. Read by host (C++) and device (OpenCL C);
 * semantics in backend/device/slots.hpp (SlotCompact). A work-group for each KV head. */
#pragma once

#include "slot_segment_params.h"

typedef struct slot_compact_params {
    slot_segment segment;
    head_view state;             /* [kv_heads][4] int: HeadState */
    winnow_u64 k_bytes, v_bytes; /* of a row */
} slot_compact_params;

#define SLOT_COMPACT_PARAMS_SIZE 176
#ifdef __OPENCL_VERSION__
typedef char
    slot_compact_params_size_differs_from_the_host[sizeof(slot_compact_params) == SLOT_COMPACT_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_compact_params) == SLOT_COMPACT_PARAMS_SIZE,
              "host and device must agree on the struct's size");
#endif
