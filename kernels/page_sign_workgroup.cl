/* page_sign, "workgroup" shape: a group of many work-items for each KV head and part of the pages, which lie in local
 * memory some at a time. What it does, in the same steps, is said in page_sign.cl. A launch either makes the centers or
 * signs pages by those that there are.
 *
 *     rows of pages   | page 0: n floats | page 1 | ...     16 elements of a page, then a byte of signs are a
 *                                                           work-item's; 16 work-items look for a nearest centroid
 *
 * Layouts: page_sign_params.h. Needs the -D of page_sign.cl.
 */
#include "slot_group.h"
#include "page_sign_params.h"

#if !defined(K_FORMAT) || !defined(K_SIZE)
#error "page_sign_workgroup.cl needs -D K_FORMAT and K_SIZE"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "local_rotation.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "page_index.h"
#ifdef CODES
#include "page_codebooks.h"
#endif
#include "page_sign_head.h"

#define CHUNKS (K_SIZE / 16)
#define PAGES (2048 / K_SIZE)      /* at a time */
#define ROWS (GROUP_SIZE / CHUNKS) /* that are added up side by side for a center */

/* What a group has in local memory. */
typedef struct sign_memory {
    float x[PAGES * K_SIZE];
    float counts[PAGES]; /* live rows */
#ifdef CODES
    float y[PAGES * K_SIZE];
    float distances[GROUP_SIZE];
    int numbers[GROUP_SIZE];
#else
    float partial[ROWS * K_SIZE];
#endif
} sign_memory;

/* The sums of the live rows of `count` pages from `page` on, of slots before `end`; 0 of no page. Ends with a barrier.
 */
ALWAYS_INLINE void load_pages(const page_sign_params* p, const __global uchar* k, const __global int* tokens, uint page,
                              uint count, uint end, uint head, __local sign_memory* m) {
    end = min(end, p->cold_first + p->cold_slots);
    for (uint i = LANE; i < PAGES * CHUNKS; i += GROUP_SIZE) {
        const uint its = i / CHUNKS, c = i % CHUNKS, first = (page + its) * p->index.page_slots;
        float16 sum = (float16)(0.0f);
        uint live = 0;
        for (uint slot = first; its < count && slot < min(first + p->index.page_slots, end); ++slot) {
            const uint row = slot - p->cold_first;
            if (tokens[row] < 0) continue;
            sum = add_chunk(sum, k + row_offset(&p->k, 0, head, row), c);
            ++live;
        }
        vstore16(sum, i, m->x);
        if (c == 0) m->counts[its] = (float)live;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#ifdef CODES
/* Codes of the pages in x. */
ALWAYS_INLINE void sign_loaded(const page_sign_params* p, __global uchar* signatures, const __global uchar* codebooks,
                               uint page, uint count, uint head, __local sign_memory* m) {
#if JOIN(FORMAT_ROTATED_, K_FORMAT)
    local_rotate_back(m->x, PAGES, K_SIZE, K_SIZE);
#endif
    for (uint i = LANE; i < count * K_SIZE; i += GROUP_SIZE) {
        const uint its = i / K_SIZE, c = i % K_SIZE;
        const float rows = fmax(m->counts[its], 1.0f);
        float sum = 0.0f;
        for (uint e = 0; e < K_SIZE; ++e)
            sum = fma(load_f16(key_matrix(codebooks), e * K_SIZE + c), m->x[its * K_SIZE + e] / rows, sum);
        m->y[i] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint lane = LANE % 16;
    for (uint begin = 0; begin < count * CODEBOOKS; begin += GROUP_SIZE / 16) {
        const uint pair = begin + LANE / 16, its = pair / CODEBOOKS, codebook = pair % CODEBOOKS;
        float least = LARGEST_FLOAT;
        int nearest = 0;
        for (uint centroid = lane; its < count && centroid < CENTROIDS; centroid += 16) {
            float distance = 0.0f;
            for (uint e = codebook * CENTROID_ELEMENTS; e < (codebook + 1) * CENTROID_ELEMENTS; ++e) {
                const float apart =
                    load_f16(centroids_of(codebooks), e * CENTROIDS + centroid) - m->y[its * K_SIZE + e];
                distance = fma(apart, apart, distance);
            }
            if (!(distance < least)) continue;
            least = distance;
            nearest = (int)centroid;
        }
        m->distances[LANE] = least;
        m->numbers[LANE] = nearest;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane == 0 && its < count) {
            for (uint other = LANE + 1; other < LANE + 16; ++other) {
                const float distance = m->distances[other];
                if (distance > least || (distance == least && m->numbers[other] >= nearest)) continue;
                least = distance;
                nearest = m->numbers[other];
            }
            __global uchar* block = signature_block(signatures, &p->index, head, (page + its) / BLOCK_PAGES);
            block[codebook * BLOCK_PAGES + (page + its) % BLOCK_PAGES] = (uchar)(m->counts[its] > 0.0f ? nearest : 0);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}
#else
/* x := R x of the rows in x, as rotate_to_segment does it. */
ALWAYS_INLINE void rotate_rows(__local sign_memory* m, uint rows) {
#if !JOIN(FORMAT_ROTATED_, K_FORMAT)
    for (uint its = LANE; its < rows; its += GROUP_SIZE) {
        __local float* const x = m->x + its * K_SIZE;
        float largest = 0.0f;
        for (uint e = 0; e < K_SIZE; ++e) largest = fabs(x[e]) > largest ? fabs(x[e]) : largest;
        for (uint e = 0; largest > 0x1p40f && e < K_SIZE; ++e) x[e] *= 0x1p40f / largest;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    local_rotate(m->x, PAGES, K_SIZE, K_SIZE);
#endif
}

/* Of the rows in x element i less the center. */
static inline float apart_of(const __local sign_memory* m, const __global uchar* center, uint i) {
    return m->x[i] / m->counts[i / K_SIZE] - load_f16(center, i % K_SIZE);
}

/* Signs of the pages in x. */
ALWAYS_INLINE void sign_loaded(const page_sign_params* p, __global uchar* signatures, const __global uchar* center,
                               uint page, uint count, uint head, __local sign_memory* m) {
    rotate_rows(m, count);
    for (uint i = LANE; i < count * SIGNATURE_BYTES; i += GROUP_SIZE) {
        const uint its = i / SIGNATURE_BYTES, byte = i % SIGNATURE_BYTES;
        uint bits = 0;
        for (uint e = 0; m->counts[its] > 0.0f && e < 8; ++e)
            bits |= (apart_of(m, center, its * K_SIZE + byte * 8 + e) >= 0.0f) << e;
        __global uchar* block = signature_block(signatures, &p->index, head, (page + its) / BLOCK_PAGES);
        block[byte * BLOCK_PAGES + (page + its) % BLOCK_PAGES] = (uchar)bits;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* c, of all live rows before center_end. */
ALWAYS_INLINE void set_mean(const page_sign_params* p, __global uchar* center, const __global uchar* k,
                            const __global int* tokens, uint head, __local sign_memory* m) {
    const uint c = LANE % CHUNKS, end = min(p->center_end, p->cold_first + p->cold_slots);
    if (LANE < ROWS * CHUNKS) {
        float16 sum = (float16)(0.0f);
        for (uint slot = p->cold_first + LANE / CHUNKS; slot < end; slot += ROWS) {
            const uint row = slot - p->cold_first;
            if (tokens[row] >= 0) sum = add_chunk(sum, k + row_offset(&p->k, 0, head, row), c);
        }
        vstore16(sum, LANE, m->partial);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = LANE; i < PAGES * K_SIZE; i += GROUP_SIZE) {
        float sum = 0.0f;
        for (uint row = 0; i < K_SIZE && row < ROWS; ++row) sum += m->partial[row * K_SIZE + i];
        m->x[i] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    rotate_rows(m, 1);
    if (LANE == 0) {
        uint live = 0;
        for (uint row = 0; row < end - p->cold_first; ++row) live += tokens[row] >= 0;
        m->counts[0] = (float)max(live, 1u);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint e = LANE; e < K_SIZE; e += GROUP_SIZE) store_bounded(center + 2 * e, m->x[e] / m->counts[0]);
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
}

/* f, once there is c. */
ALWAYS_INLINE void set_factor(const page_sign_params* p, __global uchar* center, const __global uchar* k,
                              const __global int* tokens, uint head, __local sign_memory* m) {
    const uint page_slots = p->index.page_slots, first = p->cold_first / page_slots,
               end = (p->center_end + page_slots - 1) / page_slots;
    float sum = 0.0f, pages = 0.0f; /* of some pages each */
    for (uint page = first; page < end; page += PAGES) {
        const uint count = min(end - page, (uint)PAGES);
        load_pages(p, k, tokens, page, count, p->center_end, head, m);
        rotate_rows(m, count);
        if (LANE < count && m->counts[LANE] > 0.0f) {
            float magnitude = 0.0f;
            for (uint e = 0; e < K_SIZE; ++e) magnitude += fabs(apart_of(m, center, LANE * K_SIZE + e));
            sum += magnitude / (float)K_SIZE;
            pages += 1.0f;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    if (LANE < PAGES) {
        m->x[LANE] = sum;
        m->counts[LANE] = pages;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE > 0) return;
    for (uint i = 1; i < PAGES; ++i) {
        sum += m->x[i];
        pages += m->counts[i];
    }
    store_bounded(center + 2 * K_SIZE, sum / fmax(pages, 1.0f));
}
#endif

ONE_GROUP __kernel void page_sign(PARAMS(page_sign_params), SIGN_ARGUMENTS) {
    __local sign_memory m __attribute__((aligned(64))); /* of vectors */
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(page_sign_params);
    const uint group = (uint)get_group_id(0) + group_base, head = group / p.parts, part = group % p.parts;
    PUT_SIGN_HEAD
#ifndef CODES
    if (p.center_end > 0) {
        set_mean(&p, constants, k, tokens, head, &m);
        set_factor(&p, constants, k, tokens, head, &m);
        return;
    }
#endif
    for (uint frame = LANE; part == 0 && frame < p.index.frame_count && !p.keeps_frames; frame += GROUP_SIZE)
        if (pages[frame] >= (int)p.first && pages[frame] < (int)p.end) free_frame(&p.index, pages, hot, frame);
    const uint all = p.end - p.first;
    const uint first = p.first + (uint)((ulong)all * part / p.parts),
               end = p.first + (uint)((ulong)all * (part + 1) / p.parts);
    for (uint page = first; page < end; page += PAGES) {
        const uint count = min(end - page, (uint)PAGES);
        load_pages(&p, k, tokens, page, count, 0xffffffffu, head, &m);
        sign_loaded(&p, signatures, constants, page, count, head, &m);
    }
}
