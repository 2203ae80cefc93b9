/* page_pick: scores the signatures of all pages against one query, picks the pages of the largest scores, and brings
 * their rows into the hot slots. "cpu" shape: one work-item per work-group, a group for each KV head, vectors of 16
 * pages.
 *
 *     signatures    | block of 16 pages | block | ...     scores of each query head: byte by byte, from tables of sums
 *     keys          | . 7 . 2 | 9 . . 4 | ...             sums of the heads' softmax; which are the largest, without
 *                                                         sorting: by their bits
 *     frames        | 9 | - | 7 |                         what was not picked goes, what is missing comes
 *
 * Layouts: page_pick_params.h. Needs -D:
 *     K_SIZE   elements of a key, a multiple of 16 up to 576
 *     GROUP    query heads of a KV head
 *     CODES    where signatures are codes of codebooks
 */
#include "one_work_item.h"
#include "page_pick_params.h"

#if !defined(K_SIZE) || !defined(GROUP)
#error "page_pick.cl needs -D K_SIZE and GROUP"
#endif

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "vector_lanes.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "ordered_bits.h"
#include "page_index.h"
#ifdef CODES
#include "page_codebooks.h"
#include "page_score_codes.h"
#else
#include "page_score_signs.h"
#endif

/* A page's key is its score, a float whose bits are ordered as numbers are. */
#define NO_KEY 0u /* it may not be picked */
#define PINNED 0xffffffffu
#define NOT_PICKED 0u /* once the keys have been compared */
#define PICKED 1u
#define IN_A_FRAME 2u
#define LEAST_EXPONENT (-60.0f) /* what promises less than e^-60 of the largest promises nothing */

/* ---- Which pages may be picked ---- */

static inline int is_shown(const page_pick_params* p, const __global uchar* mask, int token) {
    const uint column = p->mask_key_broadcast ? 0 : (uint)token;
    if (column >= p->mask_columns) return 0;
    return p->mask_type == TYPE_BOOL ? mask[column] != 0 : load_any(mask, p->mask_type, column) != -INFINITY;
}

static inline int16 are_shown(const page_pick_params* p, const __global uchar* mask, int16 tokens, int16 asked) {
    const int first = tokens.s0;
    if (p->mask_type != TYPE_BOOL && !p->mask_key_broadcast && first >= 0 && (uint)first + 16 <= p->mask_columns &&
        !any_lane(asked & (tokens != first + LANE_INDEX)))
        return asked & (load16_any(mask, p->mask_type, (uint)first) != (float16)(-INFINITY));
    int shown[16], token[16];
    vstore16(asked, 0, shown);
    vstore16(tokens, 0, token);
    for (uint lane = 0; lane < 16; ++lane)
        if (shown[lane]) shown[lane] = -is_shown(p, mask, token[lane]);
    return vload16(0, shown);
}

/* Bits of the slots, 16 from `first` on, that are live and visible; *anchored: of those with an anchor. */
static inline uint visible_slots(const page_pick_params* p, const __global int* tokens, const __global uchar* mask,
                                 uint first, uint* anchored) {
    *anchored = 0;
    if (first >= p->cold.slots) return 0;
    const int16 entries = load_ints(tokens + first, p->cold.slots - first, FREE_SLOT);
    const int16 ids = entries & ~ANCHOR_FLAG;
    int16 seen = (entries >= 0) & (ids >= p->visible_from) & (ids < p->visible_end);
    if (p->mask_type != TYPE_NONE && any_lane(seen)) seen = are_shown(p, mask, ids, seen);
    *anchored = bits_of_lanes(seen & ((entries & ANCHOR_FLAG) != 0));
    return bits_of_lanes(seen);
}

/* Bits of the pages that have a slot whose bit is set. */
static inline uint pages_of_slots(uint slots, uint page_slots) {
    for (; page_slots > 1; page_slots /= 2) {
        uint pairs = (slots | slots >> 1) & 0x5555;
        pairs = (pairs | pairs >> 1) & 0x3333;
        pairs = (pairs | pairs >> 2) & 0x0f0f;
        slots = (pairs | pairs >> 4) & 0x00ff;
    }
    return slots;
}

/* The same of the 16 pages of a block: whether a bit of a page's slots is set. */
static inline uint visible_pages(const page_pick_params* p, const __global int* tokens, const __global uchar* mask,
                                 uint block, uint* anchored) {
    const uint slots = p->index.page_slots;
    uint pages = 0;
    *anchored = 0;
    for (uint part = 0; part < slots; ++part) {
        uint anchors;
        const uint seen = visible_slots(p, tokens, mask, (block * slots + part) * 16, &anchors);
        pages |= pages_of_slots(seen, slots) << part * 16 / slots;
        *anchored |= pages_of_slots(anchors, slots) << part * 16 / slots;
    }
    return pages;
}

static inline int16 lanes_of_bits(uint bits) { return ((int16)((int)bits) & LANE_BITS) != 0; }

/* What is known of pages before their keys, MAY_BE_PICKED and IS_PINNED in their place, and what each query head makes
 * of them: scores[g][page], -INFINITY of pages that may not be picked. Returns how many may be picked. */
#define MAY_BE_PICKED 1u
#define IS_PINNED 2u

static uint score_pages(const page_pick_params* p, __global uchar* signatures, const __global int* tokens,
                        const __global uchar* mask, const score_tables* tables, __global uint* keys,
                        __global float* scores, uint blocks, uint head, float16* maximum) {
    uint eligible = 0;
    for (uint g = 0; g < GROUP; ++g) maximum[g] = (float16)(-INFINITY);
    for (uint block = 0; block < blocks; ++block) {
        uint anchored;
        const uint may = visible_pages(p, tokens, mask, block, &anchored);
        const uint others = max(p->pinned_from, block * BLOCK_PAGES) - block * BLOCK_PAGES; /* before the pinned ones */
        if (others < BLOCK_PAGES) anchored |= may & 0xffffu << others;
        const int16 lanes = lanes_of_bits(may);
        vstore16((as_uint16(lanes) & MAY_BE_PICKED) | (as_uint16(lanes_of_bits(anchored)) & IS_PINNED), 0,
                 keys + block * BLOCK_PAGES);
        if (!may) continue;
        eligible += popcount(may);
        float16 z[GROUP];
        score_block(signature_block(signatures, &p->index, head, block), tables, z);
        for (uint g = 0; g < GROUP; ++g) {
            const float16 seen = select((float16)(-INFINITY), z[g], lanes);
            maximum[g] = larger(seen, maximum[g]);
            vstore16(seen, block, scores + g * blocks * BLOCK_PAGES);
        }
    }
    return eligible;
}

/* e^z in the place of the scores z of a head, of the largest one's, where pages may be picked; returns their sum. */
static float make_exponentials(const __global uint* known, __global float* scores, uint blocks, float largest) {
    float16 sum = (float16)(0.0f);
    for (uint block = 0; block < blocks; ++block) {
        if (!any_lane(vload16(block, known) != (uint16)(0))) continue;
        const float16 below = vload16(block, scores) - largest;
        const float16 power = select(exp16(below), (float16)(0.0f), below < LEAST_EXPONENT);
        vstore16(power, block, scores);
        sum += power;
    }
    return sum_of_lanes(sum);
}

/* Keys of `blocks` blocks of pages, in the place of what is known of them. */
static void make_keys(__global uint* keys, __global float* scores, uint blocks, const float16* maximum) {
    float weight[GROUP]; /* 0: the head is left out */
    for (uint g = 0; g < GROUP; ++g) {
        const float sum =
            make_exponentials(keys, scores + g * blocks * BLOCK_PAGES, blocks, maximum_of_lanes(maximum[g]));
        weight[g] = sum >= 1.0f ? 1.0f / sum : 0.0f; /* no number is not */
    }
    for (uint block = 0; block < blocks; ++block) {
        const uint16 known = vload16(block, keys);
        if (!any_lane(known != (uint16)(0))) continue; /* NO_KEY is 0 */
        float16 score = (float16)(0.0f);
        for (uint g = 0; g < GROUP; ++g)
            if (weight[g] != 0.0f)
                score = fma(vload16(block, scores + g * blocks * BLOCK_PAGES), (float16)(weight[g]), score);
        const uint16 key = ordered_bits(score) | as_uint16((known & IS_PINNED) != (uint16)(0));
        vstore16(key & as_uint16((known & MAY_BE_PICKED) != (uint16)(0)), block, keys);
    }
}

/* ---- The largest keys ---- */

/* How many keys are at least `least`; `count` is a multiple of 16. */
static inline uint count_from(const __global uint* keys, uint count, uint least) {
    int16 found = (int16)(0);
    for (uint i = 0; i < count; i += 16) found -= vload16(0, keys + i) >= (uint16)(least);
    const int8 x8 = found.lo + found.hi;
    const int4 x4 = x8.lo + x8.hi;
    return (uint)(x4.x + x4.y + x4.z + x4.w);
}

/* A bound, and *equal: the `k` largest keys, k from 1 on, are those above the bound and *equal of those that equal it.
 * Bit by bit from the highest, until a bound divides the keys. */
static uint bound_of_largest(const __global uint* keys, uint count, uint k, uint* equal) {
    uint bound = 0, above = 0; /* at least k keys reach the bound; so many are larger than what is left to try */
    for (uint bit = 0x80000000u; bit != 0; bit >>= 1) {
        const uint reached = count_from(keys, count, bound | bit);
        if (reached == k) {
            *equal = 0;
            return (bound | bit) - 1;
        }
        if (reached > k)
            bound |= bit;
        else
            above = reached;
    }
    *equal = k - above;
    return bound;
}

/* PICKED or NOT_PICKED in the place of each key. */
static void mark_picked(__global uint* keys, uint count, uint least, uint equal) {
    for (uint i = 0; i < count; i += 16) {
        const uint16 key = vload16(0, keys + i);
        uint marks[16];
        vstore16(select((uint16)(NOT_PICKED), (uint16)(PICKED), key > least), 0, marks);
        if (any_lane(key == least)) {
            for (uint lane = 0; lane < 16 && equal > 0; ++lane)
                if (keys[i + lane] == least) {
                    marks[lane] = PICKED;
                    --equal;
                }
        }
        vstore16(vload16(0, marks), 0, keys + i);
    }
}

/* ---- Hysteresis ---- */

/* The keys of the pages in frames, NO_KEY for a frame without a page that may be picked; returns in how many frames
 * there is one. */
static uint make_frame_keys(const page_pick_params* p, const __global int* frames, const __global uint* keys,
                            uint pages, __global uint* frame_keys) {
    uint held = 0;
    for (uint frame = 0; frame < (p->index.frame_count + 15) / 16 * 16; ++frame) {
        const int page = frame < p->index.frame_count ? frames[frame] : -1;
        const uint key = page >= 0 && (uint)page < pages ? keys[page] : NO_KEY;
        frame_keys[frame] = key;
        held += key != NO_KEY;
    }
    return held;
}

/* Marks the `more` pages of the largest keys among those in frames that are not picked yet. */
static void mark_in_frames(const page_pick_params* p, const __global int* frames, __global uint* marks,
                           __global uint* frame_keys, uint more) {
    const uint count = (p->index.frame_count + 15) / 16 * 16;
    for (uint frame = 0; frame < p->index.frame_count; ++frame)
        if (frame_keys[frame] != NO_KEY && marks[frames[frame]] == PICKED) frame_keys[frame] = NO_KEY;
    uint equal = 0;
    const uint least = bound_of_largest(frame_keys, count, more, &equal);
    for (uint frame = 0; frame < p->index.frame_count; ++frame) {
        const uint key = frame_keys[frame];
        if (key == NO_KEY || key < least || (key == least && equal == 0)) continue;
        if (key == least) --equal;
        marks[frames[frame]] = PICKED;
    }
}

/* ---- Frames ---- */

typedef struct pick_head {
    __global uchar *hot_k, *hot_v;
    const __global uchar *cold_k, *cold_v;
    __global int *frames, *hot_tokens;
    const __global int* cold_tokens;
    const __global uchar* constants; /* the head's codebooks, or its center */
} pick_head;

/* Frees the frames whose pages were not picked, and marks the pages of the others. */
static void drop_frames(const page_pick_params* p, const pick_head* at, __global uint* marks, uint pages) {
    for (uint frame = 0; frame < p->index.frame_count; ++frame) {
        const int page = at->frames[frame];
        if (page >= 0 && (uint)page < pages && marks[page] == PICKED)
            marks[page] = IN_A_FRAME;
        else
            free_frame(&p->index, at->frames, at->hot_tokens, frame);
    }
}

static inline void fill_frame(const page_pick_params* p, const pick_head* at, uint frame, uint page) {
    at->frames[frame] = (int)page;
    for (uint i = 0; i < p->index.page_slots; ++i) {
        const uint to = frame * p->index.page_slots + i, from = page * p->index.page_slots + i;
        const int token = from < p->cold.slots ? at->cold_tokens[from] : FREE_SLOT;
        at->hot_tokens[to] = token;
        if (token < 0) continue;
        copy_bytes(at->hot_k + to * p->hot.k.stride[2], at->cold_k + from * p->cold.k.stride[2], p->k_bytes);
        copy_bytes(at->hot_v + to * p->hot.v.stride[2], at->cold_v + from * p->cold.v.stride[2], p->v_bytes);
    }
}

/* Pages that were picked and are in no frame take free ones; returns how many those are. */
static uint fill_frames(const page_pick_params* p, const pick_head* at, const __global uint* marks, uint pages) {
    uint count = 0, frame = 0;
    for (uint first = 0; first < pages; first += 16) {
        if (!any_lane(vload16(0, marks + first) == (uint16)(PICKED))) continue;
        for (uint page = first; page < first + 16; ++page) {
            if (marks[page] != PICKED) continue;
            while (at->frames[frame] >= 0) ++frame;
            fill_frame(p, at, frame, page);
            ++count;
        }
    }
    return count;
}

/* ---- A head ---- */

OUT_OF_LINE static void pick_of_head(const page_pick_params* p, const pick_head* at, __global uchar* signatures,
                                     const __global uchar* q, const __global uchar* mask, __global ulong* counts,
                                     __global uint* keys, uint head) {
    const uint slots_of_block = BLOCK_PAGES * p->index.page_slots;
    const uint blocks = (p->cold.slots + slots_of_block - 1) / slots_of_block, pages = blocks * BLOCK_PAGES;
    __global uint* const frame_keys = keys + pages;
    __global float* const scores = (__global float*)(frame_keys + (p->index.frame_count + 15) / 16 * 16);
    float16 maximum[GROUP];
    score_tables tables;
    make_tables(p, q, at->constants, scores + GROUP * pages, head, &tables);
    const uint eligible =
        score_pages(p, signatures, at->cold_tokens, mask, &tables, keys, scores, blocks, head, maximum);
    make_keys(keys, scores, blocks, maximum);
    const float16 bonus = exp16((float16)(p->bonus));
    for (uint frame = 0; frame < p->index.frame_count; ++frame) {
        const int page = at->frames[frame];
        if (page < 0 || (uint)page >= pages || keys[page] == NO_KEY || keys[page] == PINNED) continue;
        keys[page] = ordered_bits(from_ordered_bits(keys[page]) * bonus).s0;
    }
    const uint picked = min(p->count, eligible);
    uint by_score = picked;
    if (p->by_score < picked && make_frame_keys(p, at->frames, keys, pages, frame_keys) >= picked)
        by_score = min(max(p->by_score, count_from(keys, pages, PINNED)), picked);
    uint equal = 0;
    const uint least = by_score > 0 ? bound_of_largest(keys, pages, by_score, &equal) : PINNED;
    mark_picked(keys, pages, least, equal);
    if (by_score < picked) mark_in_frames(p, at->frames, keys, frame_keys, picked - by_score);
    drop_frames(p, at, keys, pages);
    counts[0] += picked;
    counts[1] += fill_frames(p, at, keys, pages);
}

ONE_WORK_ITEM __kernel void page_pick(const page_pick_params p, __global uchar* signatures, __global uchar* frames,
                                      __global uchar* centers, const __global uchar* codebooks, const __global uchar* q,
                                      const __global uchar* mask, const __global uchar* cold_k,
                                      const __global uchar* cold_v, __global uchar* cold_tokens, __global uchar* hot_k,
                                      __global uchar* hot_v, __global uchar* hot_tokens, __global uchar* counts,
                                      __global uchar* scratch, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    const uint head = (uint)get_group_id(0) + group_base;
    pick_head at;
    at.hot_k = hot_k + row_offset(&p.hot.k, 0, head, 0);
    at.hot_v = hot_v + row_offset(&p.hot.v, 0, head, 0);
    at.cold_k = cold_k + row_offset(&p.cold.k, 0, head, 0);
    at.cold_v = cold_v + row_offset(&p.cold.v, 0, head, 0);
    at.frames = (__global int*)of_head(frames, &p.index.frames, head);
    at.hot_tokens = (__global int*)of_head(hot_tokens, &p.hot.tokens, head);
    at.cold_tokens = (const __global int*)of_head(cold_tokens, &p.cold.tokens, head);
#ifdef CODES
    at.constants = codebooks_of_head(codebooks, &p.index, head);
#else
    at.constants = of_head(centers, &p.index.centers, head);
#endif
    pick_of_head(&p, &at, signatures, q, mask ? mask + row_offset(&p.mask, 0, head * GROUP, 0) : 0,
                 (__global ulong*)of_head(counts, &p.counts, head), (__global uint*)(scratch + head * p.scratch_bytes),
                 head);
}
