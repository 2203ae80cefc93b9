/* The parameters of one page_pick launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in backend/device/pages.hpp (PagePick). A work-group for each KV head.
 *
 * Scratch memory, scratch_bytes for each head, as page_pick.cl divides it: the key of each page, an uint, in whole
 * blocks of 16 pages; the scores of each query head, a float for each page, in whose place some of the keys come later;
 * the tables of page_score_codes.h, where signatures are codes; and four sets of pages, 16 bits of each for a block.
 * Where groups have many work-items, as page_pick_workgroup.cl divides it.
 */
#pragma once

#include "page_index_params.h"

/* Query heads whose tables a group of many work-items has at once: of signs, as many as have so many elements; of
 * codes. */
#define PAGE_TABLE_ELEMENTS 1024
#define PAGE_CODE_HEADS 4

typedef struct page_pick_params {
    page_index index;
    slot_segment cold, hot;
    tensor_view q, mask;         /* mask: the stride of heads is 0 where all share a row */
    head_view counts;            /* [kv_heads][2] ulong */
    winnow_u64 k_bytes, v_bytes; /* of a row */
    winnow_u64 scratch_bytes;
    winnow_i32 visible_from, visible_end;
    winnow_u32 count;
    winnow_u32 q_type, mask_type; /* mask_type: TYPE_NONE without */
    winnow_u32 mask_columns;
    winnow_u32 mask_key_broadcast;
    winnow_f32 scale, bonus;
    winnow_u32 pinned_from; /* page */
} page_pick_params;

#define PAGE_PICK_PARAMS_SIZE 512
#ifdef __OPENCL_VERSION__
typedef char page_pick_params_size_differs_from_the_host[sizeof(page_pick_params) == PAGE_PICK_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(page_pick_params) == PAGE_PICK_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
