/* Pages as kernels see them (backend/device/pages.hpp). Read by host (C++) and device (OpenCL C). */
#pragma once

#include "slot_segment_params.h"

#define PAGE_GROUP_MEMORY 26624 /* bytes of local memory that a group of many work-items takes at most */

/* Block b of KV head g begins at signatures.offset + g * signatures.stride + b * block_stride. In it, for rows of n
 * elements:
 *
 *     | byte 0 of 16 pages | byte 1 of 16 pages | ... | byte n/8 - 1 of 16 pages |
 *
 * With codebooks there are n/16 bytes, which are codes. At codebooks.offset + g * codebooks.stride, in halves:
 *
 *     | A, n * n | B, n * n | codebook 0: element 0 of 256 centroids, element 1, ... element 15 | codebook 1 | ...   */
typedef struct page_index {
    head_view signatures;
    head_view frames;  /* [kv_heads][frame_count] int: the page in each frame, or -1 */
    head_view centers; /* [kv_heads][n + 1] half, c and f; the pointer is NULL with codebooks */
    head_view codebooks;
    winnow_i64 block_stride;
    winnow_u32 page_slots;
    winnow_u32 frame_count;
} page_index;
