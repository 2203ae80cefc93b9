/* The arguments of page_pick, and what a KV head has of them. Needs before it: page_pick_params.h, the formats,
 * format_any.h, kv_rows.h, slot_parts.h, page_index.h, with CODES page_codebooks.h. */

typedef struct pick_head {
    __global uchar *hot_k, *hot_v;
    const __global uchar *cold_k, *cold_v;
    __global int *frames, *hot_tokens;
    const __global int* cold_tokens;
    const __global uchar* constants; /* the head's codebooks, or its center */
} pick_head;

#define PICK_ARGUMENTS                                                                                                 \
    __global uchar *signatures, __global uchar *frames, __global uchar *centers, const __global uchar *codebooks,      \
        const __global uchar *q, const __global uchar *mask, const __global uchar *cold_k,                             \
        const __global uchar *cold_v, __global uchar *cold_tokens, __global uchar *hot_k, __global uchar *hot_v,       \
        __global uchar *hot_tokens, __global uchar *counts, __global uchar *scratch, uint group_base

#ifdef CODES
#define CONSTANTS_OF_HEAD codebooks_of_head(codebooks, &p.index, head)
#else
#define CONSTANTS_OF_HEAD of_head(centers, &p.index.centers, head)
#endif

/* Makes `its` of the arguments. */
#define PUT_HEAD                                                                                                       \
    const pick_head its = {hot_k + row_offset(&p.hot.k, 0, head, 0),                                                   \
                           hot_v + row_offset(&p.hot.v, 0, head, 0),                                                   \
                           cold_k + row_offset(&p.cold.k, 0, head, 0),                                                 \
                           cold_v + row_offset(&p.cold.v, 0, head, 0),                                                 \
                           (__global int*)of_head(frames, &p.index.frames, head),                                      \
                           (__global int*)of_head(hot_tokens, &p.hot.tokens, head),                                    \
                           (const __global int*)of_head(cold_tokens, &p.cold.tokens, head),                            \
                           CONSTANTS_OF_HEAD};

static inline int is_shown(const page_pick_params* p, const __global uchar* mask, int token) {
    const uint column = p->mask_key_broadcast ? 0 : (uint)token;
    if (column >= p->mask_columns) return 0;
    return p->mask_type == TYPE_BOOL ? mask[column] != 0 : load_any(mask, p->mask_type, column) != -INFINITY;
}
