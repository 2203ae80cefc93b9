/* The parameters of one slot_copy launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in backend/device/slots.hpp (SlotCopy). A work-group for each KV head and one of `parts`
 * equal parts of the slots of `to`. */
#pragma once

#include "slot_segment_params.h"

typedef struct slot_copy_params {
    slot_segment from, to;
    winnow_u64 k_bytes, v_bytes; /* of a row */
    winnow_u32 k_size, v_size;   /* elements of a row */
    winnow_u32 parts;
    winnow_u32 reserved;
} slot_copy_params;

#define SLOT_COPY_PARAMS_SIZE 320
#ifdef __OPENCL_VERSION__
typedef char slot_copy_params_size_differs_from_the_host[sizeof(slot_copy_params) == SLOT_COPY_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_copy_params) == SLOT_COPY_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
