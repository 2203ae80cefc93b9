/* The parameters of one slot_scores launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in backend/device/slots.hpp (SlotScores). The rows, q_heads * queries of them with the query innermost, are cut into
 * chunks of rows_per_group, one work-group each. */
#pragma once

#include "slot_segment_params.h"

typedef struct slot_scores_params {
    tensor_view scores;                        /* [1, q_heads, queries, slots of all segments] float */
    tensor_view out;                           /* [1, q_heads, queries, columns] float */
    slot_columns segments[SLOT_MOST_SEGMENTS]; /* the slot map */
    winnow_u32 segment_count;
    winnow_u32 group; /* query heads of a KV head */
    winnow_u32 queries;
    winnow_u32 rows;
    winnow_u32 columns;
    winnow_u32 rows_per_group;
    winnow_u32 keeps_others; /* out is not filled with -INFINITY first */
    winnow_u32 reserved;
} slot_scores_params;

#define SLOT_SCORES_PARAMS_SIZE 192
#ifdef __OPENCL_VERSION__
typedef char slot_scores_size_differs_from_the_host[sizeof(slot_scores_params) == SLOT_SCORES_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_scores_params) == SLOT_SCORES_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
