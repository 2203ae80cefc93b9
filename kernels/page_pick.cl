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
#include "opencl_1_2.h"
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
#include "page_index.h"
#ifdef CODES
#include "page_codebooks.h"
#endif
#include "page_pick_head.h"
#ifdef CODES
#include "page_score_codes.h"
#else
#include "page_score_signs.h"
#endif

/* What is compared of a page, its key: IS_KEY and the bits of its score, a float that is not negative, so that keys are
 * ordered as scores are. */
#define NO_KEY 0u /* it may not be picked */
#define PINNED 0xffffffffu
#define IS_KEY 0x80000000u
#define ALL_OF_A_BLOCK 0xffffu
#define LEAST_EXPONENT (-60.0f * LOG2_E) /* what promises less than e^-60 of the largest promises nothing */

/* A head's scratch memory. Of a set of pages a block has 16 bits. */
typedef struct pick_scratch {
    __global uint16* keys;     /* [blocks] */
    __global float16* scores;  /* [GROUP][blocks]: z log2 e, then 2 to that; once there are keys, a choice of them */
    __global float* entries;   /* the tables of page_score_codes.h */
    __global ushort* eligible; /* [blocks]: the pages that may be picked */
    __global ushort* pinned;   /* those that have to be */
    __global ushort* held;     /* those in frames, before the pick */
    __global ushort* picked;
    uint blocks;
} pick_scratch;

static inline pick_scratch divide_scratch(const page_pick_params* p, __global uchar* memory) {
    const uint slots_of_block = BLOCK_PAGES * p->index.page_slots;
    pick_scratch at;
    at.blocks = (p->cold.slots + slots_of_block - 1) / slots_of_block;
    at.keys = (__global uint16*)memory;
    at.scores = (__global float16*)(at.keys + at.blocks);
    at.entries = (__global float*)(at.scores + GROUP * at.blocks);
    at.eligible = (__global ushort*)(at.entries + ENTRIES);
    at.pinned = at.eligible + at.blocks;
    at.held = at.pinned + at.blocks;
    at.picked = at.held + at.blocks;
    return at;
}

static inline int has_page(const __global ushort* bits, uint page) {
    return bits[page / BLOCK_PAGES] >> page % BLOCK_PAGES & 1;
}

static inline void add_page(__global ushort* bits, uint page) {
    bits[page / BLOCK_PAGES] |= (ushort)(1 << page % BLOCK_PAGES);
}

/* ---- Which pages may be picked ---- */

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

/* Whether nothing hides any slot of a block, and none has an anchor. */
static inline int is_plain_block(const page_pick_params* p, const __global int* tokens, uint block) {
    const uint slots = p->index.page_slots, first = block * slots * BLOCK_PAGES;
    if (p->mask_type != TYPE_NONE || first + slots * BLOCK_PAGES > p->cold.slots) return 0;
    const uint from = (uint)p->visible_from, end = (uint)min(p->visible_end, ANCHOR_FLAG);
    if (end < from) return 0;
    uint16 furthest = (uint16)(0);
    for (uint part = 0; part < slots; ++part)
        furthest = max(furthest, as_uint16(vload16(0, tokens + first + part * 16)) - from);
    return !any_lane(furthest >= (uint16)(end - from));
}

/* As visible_slots, of the 16 pages of a block, each of which has what any of its slots has. */
static inline uint visible_pages(const page_pick_params* p, const __global int* tokens, const __global uchar* mask,
                                 uint block, uint* anchored) {
    const uint slots = p->index.page_slots;
    uint pages = 0;
    *anchored = 0;
    if (is_plain_block(p, tokens, block)) return ALL_OF_A_BLOCK;
    for (uint part = 0; part < slots; ++part) {
        uint anchors;
        const uint seen = visible_slots(p, tokens, mask, (block * slots + part) * 16, &anchors);
        pages |= pages_of_slots(seen, slots) << part * 16 / slots;
        *anchored |= pages_of_slots(anchors, slots) << part * 16 / slots;
    }
    return pages;
}

/* Which pages may be picked, which of them have to be, and what each query head makes of them: -INFINITY of the others
 * of their block. Returns how many may be picked. */
static uint score_pages(const page_pick_params* p, const pick_scratch* at, __global uchar* signatures,
                        const __global int* tokens, const __global uchar* mask, const score_tables* tables, uint head,
                        float16* maximum) {
    uint eligible = 0;
    for (uint g = 0; g < GROUP; ++g) maximum[g] = (float16)(-INFINITY);
    for (uint block = 0; block < at->blocks; ++block) {
        uint anchored;
        const uint may = visible_pages(p, tokens, mask, block, &anchored);
        const uint others = max(p->pinned_from, block * BLOCK_PAGES) - block * BLOCK_PAGES; /* before the pinned ones */
        if (others < BLOCK_PAGES) anchored |= may & ALL_OF_A_BLOCK << others;
        at->eligible[block] = (ushort)may;
        at->pinned[block] = (ushort)anchored;
        if (!may) continue;
        eligible += popcount(may);
        float16 z[GROUP];
        score_block(signature_block(signatures, &p->index, head, block), tables, z);
        if (may != ALL_OF_A_BLOCK)
#pragma unroll
            for (uint g = 0; g < GROUP; ++g) z[g] = select((float16)(-INFINITY), z[g], lanes_of_bits(may));
#pragma unroll
        for (uint g = 0; g < GROUP; ++g) {
            maximum[g] = larger(z[g], maximum[g]);
            at->scores[g * at->blocks + block] = z[g];
        }
    }
    return eligible;
}

/* 2^z in the place of the scores z of a head, of the largest one's, where pages may be picked; returns their sum. */
static float make_exponentials(const pick_scratch* at, __global float16* scores, float largest) {
    float16 sum = (float16)(0.0f);
    for (uint block = 0; block < at->blocks; ++block) {
        if (!at->eligible[block]) continue;
        const float16 below = scores[block] - largest;
        const float16 power = select(exp2_of_negative16(below), (float16)(0.0f), below < LEAST_EXPONENT);
        scores[block] = power;
        sum += power;
    }
    return sum_of_lanes(sum);
}

static void make_keys(const page_pick_params* p, const pick_scratch* at, const float16* maximum) {
    float weight[GROUP]; /* 0: the head is left out */
    for (uint g = 0; g < GROUP; ++g) {
        const float sum = make_exponentials(at, at->scores + g * at->blocks, maximum_of_lanes(maximum[g]));
        weight[g] = sum >= 1.0f ? 1.0f / sum : 0.0f; /* no number is not */
    }
    const float16 bonus = exp16((float16)(p->bonus));
    for (uint block = 0; block < at->blocks; ++block) {
        uint16 key = (uint16)(NO_KEY);
        if (at->eligible[block]) {
            float16 score = (float16)(0.0f);
#pragma unroll
            for (uint g = 0; g < GROUP; ++g)
                if (weight[g] != 0.0f) score = fma(at->scores[g * at->blocks + block], (float16)(weight[g]), score);
            score = select(score, score * bonus, lanes_of_bits(at->held[block]));
            key = (as_uint16(score) | IS_KEY | as_uint16(lanes_of_bits(at->pinned[block]))) &
                  as_uint16(lanes_of_bits(at->eligible[block]));
        }
        at->keys[block] = key;
    }
}

/* ---- The largest keys ---- */

/* How many keys of `count` vectors are at least `least`. */
static inline uint count_from(const __global uint16* keys, uint count, uint least) {
    int16 found = (int16)(0);
#pragma unroll 4
    for (uint i = 0; i < count; ++i) found -= keys[i] >= (uint16)(least);
    const int8 x8 = found.lo + found.hi;
    const int4 x4 = x8.lo + x8.hi;
    return (uint)(x4.x + x4.y + x4.z + x4.w);
}

/* Puts the keys from `least` to `most` into `some`; returns how many vectors that makes. */
static uint collect_keys(const __global uint16* keys, uint count, uint least, uint most, __global uint16* some) {
    __global uint* const found = (__global uint*)some;
    uint number = 0;
    for (uint i = 0; i < count; ++i) {
        uint within = bits_of_lanes((keys[i] >= (uint16)(least)) & (keys[i] <= (uint16)(most)));
        for (; within; within &= within - 1)
            found[number++] = ((const __global uint*)(keys + i))[trailing_zeros(within)];
    }
    for (; number % 16; ++number) found[number] = NO_KEY;
    return number / 16;
}

#define FEW 64 /* one key of so many is worth being collected */

/* A bound, and *equal: the `k` largest keys, k from 1 on, are those above the bound and *equal of those that equal it.
 * Bit by bit from the highest, until a bound divides the keys; where few keys are left to be divided, among these
 * alone, in `some`. */
static uint bound_of_largest(const __global uint16* keys, uint count, uint k, __global uint16* some, uint* equal) {
    uint bound = 0, at_least = 16 * count; /* so many keys, at least k, reach the bound */
    uint above = 0;                        /* so many are larger than what is left to try */
    uint elsewhere = 0;                    /* so many are larger, and not among `keys` */
    for (uint bit = 0x80000000u; bit != 0; bit >>= 1) {
        if (keys != some && at_least - above < 16 * count / FEW) {
            count = collect_keys(keys, count, bound, bound | bit | (bit - 1), some);
            keys = some;
            elsewhere = above;
        }
        const uint reached = elsewhere + count_from(keys, count, bound | bit);
        if (reached == k) {
            *equal = 0;
            return (bound | bit) - 1;
        }
        if (reached > k) {
            bound |= bit;
            at_least = reached;
        } else {
            above = reached;
        }
    }
    *equal = k - above;
    return bound;
}

static void mark_picked(const pick_scratch* at, uint least, uint equal) {
    for (uint block = 0; block < at->blocks; ++block) {
        const uint16 key = at->keys[block];
        uint picked = bits_of_lanes(key > (uint16)(least));
        if (equal > 0)
            for (uint ties = bits_of_lanes(key == (uint16)(least)); ties && equal > 0; ties &= ties - 1, --equal)
                picked |= ties & -ties;
        at->picked[block] = (ushort)picked;
    }
}

/* ---- Frames ---- */

static void find_held(const page_pick_params* p, const pick_scratch* at, const __global int* frames) {
    for (uint block = 0; block < at->blocks; ++block) at->held[block] = 0;
    for (uint frame = 0; frame < p->index.frame_count; ++frame) {
        const int page = frames[frame];
        if (page >= 0 && (uint)page < at->blocks * BLOCK_PAGES) add_page(at->held, (uint)page);
    }
}

/* Frees the frames whose pages were not picked. */
static void drop_frames(const page_pick_params* p, const pick_scratch* at, const pick_head* its) {
    for (uint frame = 0; frame < p->index.frame_count; ++frame) {
        const int page = its->frames[frame];
        if (page < 0 || (uint)page >= at->blocks * BLOCK_PAGES || !has_page(at->picked, (uint)page))
            free_frame(&p->index, its->frames, its->hot_tokens, frame);
    }
}

static inline void fill_frame(const page_pick_params* p, const pick_head* its, uint frame, uint page) {
    its->frames[frame] = (int)page;
    for (uint i = 0; i < p->index.page_slots; ++i) {
        const uint to = frame * p->index.page_slots + i, from = page * p->index.page_slots + i;
        const int token = from < p->cold.slots ? its->cold_tokens[from] : FREE_SLOT;
        its->hot_tokens[to] = token;
        if (token < 0) continue;
        copy_bytes(its->hot_k + to * p->hot.k.stride[2], its->cold_k + from * p->cold.k.stride[2], p->k_bytes);
        copy_bytes(its->hot_v + to * p->hot.v.stride[2], its->cold_v + from * p->cold.v.stride[2], p->v_bytes);
    }
}

/* Pages that were picked and are in no frame take free ones; returns how many those are. */
static uint fill_frames(const page_pick_params* p, const pick_scratch* at, const pick_head* its) {
    uint count = 0, frame = 0;
    for (uint block = 0; block < at->blocks; ++block)
        for (uint missing = at->picked[block] & ~(uint)at->held[block]; missing; missing &= missing - 1) {
            while (frame < p->index.frame_count && its->frames[frame] >= 0) ++frame;
            if (frame == p->index.frame_count) return count; /* only if two frames had one page */
            fill_frame(p, its, frame, block * BLOCK_PAGES + trailing_zeros(missing));
            ++count;
        }
    return count;
}

/* ---- A head ---- */

OUT_OF_LINE static void pick_of_head(const page_pick_params* p, const pick_head* its, __global uchar* signatures,
                                     const __global uchar* q, const __global uchar* mask, __global ulong* counts,
                                     __global uchar* memory, uint head) {
    const pick_scratch at = divide_scratch(p, memory);
    float16 maximum[GROUP];
    score_tables tables;
    make_tables(p, q, its->constants, at.entries, head, &tables);
    find_held(p, &at, its->frames);
    const uint eligible = score_pages(p, &at, signatures, its->cold_tokens, mask, &tables, head, maximum);
    make_keys(p, &at, maximum);
    const uint picked = min(p->count, eligible);
    uint equal = 0, least = PINNED;
    if (picked > 0) least = bound_of_largest(at.keys, at.blocks, picked, (__global uint16*)at.scores, &equal);
    mark_picked(&at, least, equal);
    drop_frames(p, &at, its);
    counts[0] += picked;
    counts[1] += fill_frames(p, &at, its);
}

ONE_WORK_ITEM __kernel void page_pick(PARAMS(page_pick_params), PICK_ARGUMENTS) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(page_pick_params);
    const uint head = (uint)get_group_id(0) + group_base;
    PUT_HEAD
    pick_of_head(&p, &its, signatures, q, mask ? mask + row_offset(&p.mask, 0, head * GROUP, 0) : 0,
                 (__global ulong*)of_head(counts, &p.counts, head), scratch + head * p.scratch_bytes, head);
}
