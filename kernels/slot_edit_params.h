/* The parameters of one slot_edit launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in backend/device/slots.hpp (SlotEdit). One segment; a work-group for each KV head and one of `parts` equal parts of
 * its slots. */
#pragma once

#include "slot_segment_params.h"

/* The numbers of SlotEdit::Action. */
#define SLOT_EDIT_FREE 0
#define SLOT_EDIT_SHIFT 1
#define SLOT_EDIT_ANCHOR 2

typedef struct slot_edit_params {
    head_view tokens; /* [kv_heads][slots] int */
    winnow_u32 slots;
    winnow_i32 begin, end; /* the range */
    winnow_i32 delta;
    winnow_u32 action; /* SLOT_EDIT_* */
    winnow_u32 parts;
} slot_edit_params;

#define SLOT_EDIT_PARAMS_SIZE 40
#ifdef __OPENCL_VERSION__
typedef char slot_edit_params_size_differs_from_the_host[sizeof(slot_edit_params) == SLOT_EDIT_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_edit_params) == SLOT_EDIT_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
