/* The parameters of one page_sign launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in backend/device/pages.hpp (PageSign). A work-group for each KV head and part of the pages. */
#pragma once

#include "page_index_params.h"

typedef struct page_sign_params {
    page_index index;
    tensor_view k;         /* of the cold segment */
    head_view cold_tokens; /* [kv_heads][cold_slots] int */
    head_view hot_tokens;  /* [kv_heads][frames * page_slots] int */
    winnow_u32 cold_slots;
    winnow_u32 first, end; /* pages */
    winnow_u32 cold_first; /* the slot that row 0 of k and entry 0 of cold_tokens are of */
    winnow_u32 center_end; /* 0: the center stays; no other number is below cold_first */
    winnow_u32 keeps_frames;
    winnow_u32 parts; /* of the pages; 1 in the shape "cpu" */
    winnow_u32 reserved;
} page_sign_params;

#define PAGE_SIGN_PARAMS_SIZE 176
#ifdef __OPENCL_VERSION__
typedef char page_sign_params_size_differs_from_the_host[sizeof(page_sign_params) == PAGE_SIGN_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(page_sign_params) == PAGE_SIGN_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
