/* The arguments of page_sign, what a KV head has of them, and what all shapes do with rows. Needs before it:
 * page_sign_params.h, the formats, format_any.h, slot_parts.h, page_index.h, K_FORMAT, K_SIZE, with CODES
 * page_codebooks.h. */

#define SIGN_ARGUMENTS                                                                                                 \
    __global uchar *signatures, __global uchar *frames, __global uchar *centers, const __global uchar *codebooks,      \
        const __global uchar *k, __global uchar *cold_tokens, __global uchar *hot_tokens, uint group_base

/* The head's codebooks, or its center. */
#ifdef CODES
#define SIGN_CONSTANTS const __global uchar* const constants = codebooks_of_head(codebooks, &p.index, head)
#else
#define SIGN_CONSTANTS __global uchar* const constants = of_head(centers, &p.index.centers, head)
#endif

#define PUT_SIGN_HEAD                                                                                                  \
    __global int* const pages = (__global int*)of_head(frames, &p.index.frames, head);                                 \
    __global int* const hot = (__global int*)of_head(hot_tokens, &p.hot_tokens, head);                                 \
    const __global int* const tokens = (const __global int*)of_head(cold_tokens, &p.cold_tokens, head);                \
    SIGN_CONSTANTS;

#define LARGEST_FLOAT 0x1.fffffep127f

/* Adds 16 elements of a row to a sum, rotated where its format is. */
static inline float16 add_chunk(float16 sum, const __global uchar* row, uint c) {
#if JOIN(FORMAT_ROW_SCALED_, K_FORMAT)
    const float scale = JOIN(row_scale_, K_FORMAT)(row, K_SIZE);
#else
    const float scale = 1.0f;
#endif
    return fma(JOIN(load16_, K_FORMAT)(row, c * 16, K_SIZE), (float16)(scale), sum);
}

static inline void store_bounded(__global uchar* to, float number) {
    store_half(to, isnan(number) ? 0.0f : clamp(number, -65504.0f, 65504.0f));
}
