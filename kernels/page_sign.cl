/* page_sign: makes the signatures of pages from their rows. "cpu" shape: one work-item per work-group, a group for each
 * KV head, which takes the pages one after another.
 *
 *     live rows of a page  | k0 - mean | k1 - mean |  ->  r = R(sum of rows / rows) - c  ->  signs of r
 *                                                     ->  r = A (sum of rows / rows)      ->  the nearest centroids
 *
 * Layouts: page_sign_params.h. Needs -D:
 *     K_FORMAT   of the rows; -DUSES_F with it where F is packed
 *     K_SIZE     elements of a row, a multiple of 16 up to 576
 *     CODES      where signatures are codes of codebooks
 */
#include "one_work_item.h"
#include "page_sign_params.h"

#if !defined(K_FORMAT) || !defined(K_SIZE)
#error "page_sign.cl needs -D K_FORMAT and K_SIZE"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "vector_lanes.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "page_index.h"
#ifdef CODES
#include "page_codebooks.h"
#endif
#include "page_sign_head.h"

static inline void add_row(float16* sum, const __global uchar* row) {
    for (uint c = 0; c < K_SIZE / 16; ++c) sum[c] = add_chunk(sum[c], row, c);
}

#ifdef CODES
/* The number of the centroid that is nearest to the elements from r on. */
static inline uint nearest_centroid(const float* r, const __global uchar* centroids, uint codebook) {
    float16 least = (float16)(LARGEST_FLOAT);
    int16 nearest = (int16)(0);
    for (uint first = 0; first < CENTROIDS; first += 16) {
        float16 distance = (float16)(0.0f);
        for (uint e = 0; e < CENTROID_ELEMENTS; ++e) {
            const uint at = (codebook * CENTROID_ELEMENTS + e) * CENTROIDS + first;
            const float16 apart = load16_f16(centroids, at, 16) - r[e];
            distance = fma(apart, apart, distance);
        }
        const int16 is_nearer = distance < least;
        least = select(least, distance, is_nearer);
        nearest = select(nearest, LANE_INDEX + (int)first, is_nearer);
    }
    float distances[16], found = LARGEST_FLOAT;
    int numbers[16], code = 0;
    vstore16(least, 0, distances);
    vstore16(nearest, 0, numbers);
    for (uint lane = 0; lane < 16; ++lane) {
        if (distances[lane] > found || (distances[lane] == found && numbers[lane] >= code)) continue;
        found = distances[lane];
        code = numbers[lane];
    }
    return (uint)code;
}

/* The signature of r = A (x / count), to place `lane` of a block. */
static inline void store_signature(__global uchar* block, uint lane, float16* x, float count,
                                   const __global uchar* codebooks) {
    float mean[K_SIZE], r[K_SIZE];
#if JOIN(FORMAT_ROTATED_, K_FORMAT)
    rotate_back(x, K_SIZE);
#endif
    for (uint c = 0; c < K_SIZE / 16; ++c) vstore16(x[c] / count, c, mean);
    multiply(r, key_matrix(codebooks), mean);
    for (uint j = 0; j < SIGNATURE_BYTES; ++j)
        block[j * BLOCK_PAGES + lane] = (uchar)nearest_centroid(r + j * CENTROID_ELEMENTS, centroids_of(codebooks), j);
}
#else
/* R(x / count). */
static inline void rotated_mean(float16* x, float count) {
#if !JOIN(FORMAT_ROTATED_, K_FORMAT)
    rotate_to_segment(x, K_SIZE);
#endif
    for (uint c = 0; c < K_SIZE / 16; ++c) x[c] /= count;
}

/* r = R(x / count) less the center, in the place of x. */
static inline void to_apart(float16* x, float count, const __global uchar* center) {
    rotated_mean(x, count);
    for (uint c = 0; c < K_SIZE / 16; ++c) x[c] -= load16_f16(center, c * 16, K_SIZE);
}

/* The signature of x / count, to place `lane` of a block. */
static inline void store_signature(__global uchar* block, uint lane, float16* x, float count,
                                   const __global uchar* center) {
    to_apart(x, count, center);
    for (uint c = 0; c < K_SIZE / 16; ++c) {
        const uint bits = bits_of_lanes(x[c] >= 0.0f);
        block[(2 * c) * BLOCK_PAGES + lane] = (uchar)bits;
        block[(2 * c + 1) * BLOCK_PAGES + lane] = (uchar)(bits >> 8);
    }
}
#endif

/* The sum of the live rows of slots [first, end), and how many there are. */
OUT_OF_LINE static uint sum_rows(const page_sign_params* p, const __global uchar* k, const __global int* tokens,
                                 uint first, uint end, uint head, float16* x) {
    for (uint c = 0; c < K_SIZE / 16; ++c) x[c] = (float16)(0.0f);
    uint count = 0;
    for (uint slot = first; slot < min(end, p->cold_first + p->cold_slots); ++slot) {
        const uint row = slot - p->cold_first;
        if (tokens[row] < 0) continue;
        add_row(x, k + row_offset(&p->k, 0, head, row));
        ++count;
    }
    return count;
}

#ifndef CODES
/* c, and behind it f. */
static void set_center(const page_sign_params* p, __global uchar* center, const __global uchar* k,
                       const __global int* tokens, uint head) {
    float16 x[K_SIZE / 16];
    const uint count = sum_rows(p, k, tokens, p->cold_first, p->center_end, head, x);
    rotated_mean(x, (float)max(count, 1u));
    for (uint c = 0; c < K_SIZE / 16; ++c) {
        float lanes[16];
        vstore16(x[c], 0, lanes);
        for (uint e = 0; e < 16; ++e) store_bounded(center + 2 * (c * 16 + e), lanes[e]);
    }
    float sum = 0.0f, pages = 0.0f;
    for (uint first = p->cold_first; first < p->center_end; first += p->index.page_slots) {
        const uint live = sum_rows(p, k, tokens, first, min(first + p->index.page_slots, p->center_end), head, x);
        if (live == 0) continue;
        to_apart(x, (float)live, center);
        float16 magnitude = (float16)(0.0f);
        for (uint c = 0; c < K_SIZE / 16; ++c) magnitude += fabs(x[c]);
        sum += sum_of_lanes(magnitude) / (float)K_SIZE;
        pages += 1.0f;
    }
    store_bounded(center + 2 * K_SIZE, sum / fmax(pages, 1.0f));
}
#endif

/* constants: the head's codebooks, or its center. */
static inline void sign_page(const page_sign_params* p, __global uchar* signatures, const __global uchar* k,
                             const __global int* tokens, const __global uchar* constants, uint page, uint head) {
    float16 x[K_SIZE / 16];
    const uint first = page * p->index.page_slots;
    const uint count = sum_rows(p, k, tokens, first, first + p->index.page_slots, head, x);
    __global uchar* block = signature_block(signatures, &p->index, head, page / BLOCK_PAGES);
    if (count == 0) {
        for (uint j = 0; j < SIGNATURE_BYTES; ++j) block[j * BLOCK_PAGES + page % BLOCK_PAGES] = 0;
        return;
    }
    store_signature(block, page % BLOCK_PAGES, x, (float)count, constants);
}

ONE_WORK_ITEM __kernel void page_sign(PARAMS(page_sign_params), SIGN_ARGUMENTS) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(page_sign_params);
    const uint head = (uint)get_group_id(0) + group_base;
    PUT_SIGN_HEAD
    for (uint frame = 0; frame < p.index.frame_count && !p.keeps_frames; ++frame)
        if (pages[frame] >= (int)p.first && pages[frame] < (int)p.end) free_frame(&p.index, pages, hot, frame);
#ifndef CODES
    if (p.center_end > 0) set_center(&p, constants, k, tokens, head);
#endif
    for (uint page = p.first; page < p.end; ++page) sign_page(&p, signatures, k, tokens, constants, page, head);
}
