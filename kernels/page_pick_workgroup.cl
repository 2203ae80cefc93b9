/* page_pick, "workgroup" shape: a group of many work-items for each KV head. What it does, in the same steps, is said
 * in page_pick.cl; a page, or a frame, is a work-item's, the largest keys are found with counts in local memory
 * (slot_group_select.h), and rows come side by side.
 *
 *     tables        | head 0 | head 1 | ...    in local memory, of as many query heads as find room there; signs
 *     codes         | 4 heads |                of their tables in scratch memory
 *
 * Layouts: page_pick_params.h. Needs the -D of page_pick.cl.
 */
#include "slot_group.h"
#include "page_pick_params.h"

#if !defined(K_SIZE) || !defined(GROUP)
#error "page_pick_workgroup.cl needs -D K_SIZE and GROUP"
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
#include "page_pick_head.h"
#define KEY_RUNS 1
#include "slot_bound.h"
#include "slot_group_select.h"
#include "slot_group_floats.h"
#include "slot_group_rows.h"
#ifdef CODES
#include "page_group_codes.h"
#else
#include "page_group_signs.h"
#endif

/* A page's key: 1 where it has to be picked, else the larger the less its score is, a float that is not negative. */
#define PINNED_KEY 1UL
#define KEY_OF_SCORE(score) (0x80000000UL - as_uint(score))

#define MAY 1 /* be picked */
#define PINNED 2
#define HELD 4 /* in a frame, before the pick */
#define PICKED 8

#define LEAST_EXPONENT (-60.0f * LOG2_E) /* what promises less than e^-60 of the largest promises nothing */

/* A head's scratch memory. */
typedef struct pick_scratch {
    __global ulong* keys;
    __global float* z;      /* [HEADS][pages]: times log2 e, then 2 to that */
    __global float* scores; /* [pages] */
    __global float* entries;
    __global uint *missing, *free, *to_rows, *from_rows; /* pages, frames, slots */
    __global uchar* flags;                               /* [pages] */
    uint pages;
} pick_scratch;

ALWAYS_INLINE pick_scratch divide_scratch(const page_pick_params* p, __global uchar* memory) {
    const uint frames = p->index.frame_count;
    pick_scratch at;
    at.pages = (p->cold.slots + p->index.page_slots - 1) / p->index.page_slots;
    at.entries = (__global float*)memory; /* vectors */
    at.keys = (__global ulong*)(at.entries + ENTRIES);
    at.z = (__global float*)(at.keys + at.pages);
    at.scores = at.z + HEADS * at.pages;
    at.missing = (__global uint*)(at.scores + at.pages);
    at.free = at.missing + frames;
    at.to_rows = at.free + frames;
    at.from_rows = at.to_rows + frames * p->index.page_slots;
    at.flags = (__global uchar*)(at.from_rows + frames * p->index.page_slots);
    return at;
}

/* ---- Which pages may be picked ---- */

ALWAYS_INLINE uchar flags_of_page(const page_pick_params* p, const __global int* tokens, const __global uchar* mask,
                                  uint page) {
    int is_seen = 0, is_pinned = page >= p->pinned_from;
    const uint first = page * p->index.page_slots, end = min(first + p->index.page_slots, p->cold.slots);
    for (uint slot = first; slot < end; ++slot) {
        const int token = tokens[slot], id = token & ~ANCHOR_FLAG;
        if (token < 0 || id < p->visible_from || id >= p->visible_end) continue;
        if (p->mask_type != TYPE_NONE && !is_shown(p, mask, id)) continue;
        is_seen = 1;
        is_pinned |= (token & ANCHOR_FLAG) != 0;
    }
    return is_seen ? (is_pinned ? MAY | PINNED : MAY) : 0;
}

/* Sets the flags of all pages; returns how many may be picked. */
ALWAYS_INLINE uint flag_pages(const page_pick_params* p, const pick_scratch* at, const pick_head* its,
                              const __global uchar* mask, __local select_state* s) {
    uint may = 0;
    for (uint page = LANE; page < at->pages; page += GROUP_SIZE) {
        const uchar flags = flags_of_page(p, its->cold_tokens, mask, page);
        at->flags[page] = flags;
        may += (flags & MAY) != 0;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (uint frame = LANE; frame < p->index.frame_count; frame += GROUP_SIZE) {
        const int page = its->frames[frame];
        if (page >= 0 && (uint)page < at->pages) at->flags[page] |= HELD;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return sum_of_group(&s->sums, may);
}

/* ---- What pages promise ---- */

/* Adds a head's softmax of z to the scores. */
ALWAYS_INLINE void add_softmax(const pick_scratch* at, __global float* z, float largest, __local select_state* s) {
    float sum = 0.0f;
    for (uint page = LANE; page < at->pages; page += GROUP_SIZE) {
        if ((at->flags[page] & MAY) == 0) continue;
        const float below = z[page] - largest;
        const float power = below < LEAST_EXPONENT ? 0.0f : exp2(below);
        z[page] = power;
        sum += power;
    }
    sum = float_sum_of_group(&s->sums, sum);
    if (!(sum >= 1.0f)) return; /* no number is not */
    const float weight = 1.0f / sum;
    for (uint page = LANE; page < at->pages; page += GROUP_SIZE)
        if (at->flags[page] & MAY) at->scores[page] = fma(z[page], weight, at->scores[page]);
}

ALWAYS_INLINE void score_pages(const page_pick_params* p, const pick_scratch* at, const __global uchar* q,
                               const pick_head* its, __global uchar* signatures, uint head, __local float* tables,
                               __local select_state* s) {
    for (uint page = LANE; page < at->pages; page += GROUP_SIZE) at->scores[page] = 0.0f;
    for (uint first = 0; first < GROUP; first += HEADS) {
        make_tables(p, q, its->constants, at->entries, head, first, tables);
        float maximum[HEADS];
#pragma unroll
        for (uint g = 0; g < HEADS; ++g) maximum[g] = -INFINITY;
        for (uint page = LANE; page < at->pages; page += GROUP_SIZE) {
            if ((at->flags[page] & MAY) == 0) continue;
            float z[HEADS];
            score_page(signature_block(signatures, &p->index, head, page / BLOCK_PAGES) + page % BLOCK_PAGES,
                       at->entries, tables, z);
#pragma unroll
            for (uint g = 0; g < HEADS; ++g) {
                maximum[g] = z[g] > maximum[g] ? z[g] : maximum[g]; /* never NaN: the sum of the exponentials is */
                at->z[g * at->pages + page] = z[g];
            }
        }
#pragma unroll
        for (uint g = 0; g < HEADS; ++g)
            if (first + g < GROUP)
                add_softmax(at, at->z + g * at->pages, float_maximum_of_group(&s->sums, maximum[g]), s);
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE); /* the next heads' tables come in the same memory */
    }
}

ALWAYS_INLINE void make_keys(const page_pick_params* p, const pick_scratch* at) {
    const float bonus = exp(p->bonus);
    for (uint page = LANE; page < at->pages; page += GROUP_SIZE) {
        const uchar flags = at->flags[page];
        const float score = flags & HELD ? at->scores[page] * bonus : at->scores[page];
        at->keys[page] = (flags & MAY) == 0 ? NO_KEY : flags & PINNED ? PINNED_KEY : KEY_OF_SCORE(score);
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* ---- The largest scores ---- */

ALWAYS_INLINE void mark_picked(const pick_scratch* at, uint count, __local select_state* s) {
    const slot_keys keys = {{at->keys}, {at->pages}, {0}};
    const slot_bound bound = smallest_slots(&keys, count, s);
    for (uint page = LANE; page < at->pages; page += GROUP_SIZE)
        if (count > 0 && at->keys[page] != NO_KEY && is_within(bound, at->keys[page], page)) at->flags[page] |= PICKED;
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* ---- Frames ---- */

/* The pages that were picked and are in no frame, in ascending order; returns how many. */
ALWAYS_INLINE uint list_missing(const pick_scratch* at, uint most, __local select_state* s) {
    uint count = 0;
    for (uint begin = 0; begin < at->pages; begin += GROUP_SIZE) {
        const uint page = begin + LANE;
        const int is_missing = page < at->pages && (at->flags[page] & (PICKED | HELD)) == PICKED;
        uint of_all;
        const uint to = count + sum_before(&s->sums, is_missing, &of_all);
        if (is_missing && to < most) at->missing[to] = page;
        count += of_all;
    }
    return min(count, most);
}

/* Frees the frames whose pages were not picked; returns how many are free then, a list of them in ascending order. */
ALWAYS_INLINE uint drop_frames(const page_pick_params* p, const pick_scratch* at, const pick_head* its,
                               __local select_state* s) {
    uint count = 0;
    for (uint begin = 0; begin < p->index.frame_count; begin += GROUP_SIZE) {
        const uint frame = begin + LANE;
        int is_free = 0;
        if (frame < p->index.frame_count) {
            const int page = its->frames[frame];
            is_free = page < 0 || (uint)page >= at->pages || (at->flags[page] & PICKED) == 0;
        }
        if (is_free) free_frame(&p->index, its->frames, its->hot_tokens, frame);
        uint of_all;
        const uint to = count + sum_before(&s->sums, is_free, &of_all);
        if (is_free) at->free[to] = frame;
        count += of_all;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return count;
}

ALWAYS_INLINE void bring_rows(const pick_scratch* at, __global uchar* to, long to_stride, const __global uchar* from,
                              long from_stride, uint rows, ulong bytes) {
    const moved_rows moved = {to, from, to_stride, from_stride, at->to_rows, at->from_rows, rows, (uint)bytes};
    if (bytes > 0) move_rows_of_bytes(moved);
}

/* The first `count` pages of the one list come into the frames of the other. */
ALWAYS_INLINE void fill_frames(const page_pick_params* p, const pick_scratch* at, const pick_head* its, uint count,
                               __local select_state* s) {
    const uint page_slots = p->index.page_slots;
    uint rows = 0;
    for (uint begin = 0; begin < count * page_slots; begin += GROUP_SIZE) {
        const uint i = begin + LANE;
        uint to = 0, from = 0;
        int is_live = 0;
        if (i < count * page_slots) {
            const uint frame = at->free[i / page_slots], page = at->missing[i / page_slots];
            to = frame * page_slots + i % page_slots;
            from = page * page_slots + i % page_slots;
            const int token = from < p->cold.slots ? its->cold_tokens[from] : FREE_SLOT;
            its->hot_tokens[to] = token;
            if (i % page_slots == 0) its->frames[frame] = (int)page;
            is_live = token >= 0;
        }
        uint of_all;
        const uint row = rows + sum_before(&s->sums, is_live, &of_all);
        if (is_live) {
            at->to_rows[row] = to;
            at->from_rows[row] = from;
        }
        rows += of_all;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    bring_rows(at, its->hot_k, p->hot.k.stride[2], its->cold_k, p->cold.k.stride[2], rows, p->k_bytes);
    bring_rows(at, its->hot_v, p->hot.v.stride[2], its->cold_v, p->cold.v.stride[2], rows, p->v_bytes);
}

ONE_GROUP __kernel void page_pick(PARAMS(page_pick_params), PICK_ARGUMENTS) {
    __local select_state s;
    __local float tables[TABLE_FLOATS] __attribute__((aligned(64))); /* of vectors */
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(page_pick_params);
    const uint head = (uint)get_group_id(0) + group_base;
    PUT_HEAD
    const pick_scratch at = divide_scratch(&p, scratch + head * p.scratch_bytes);
    const uint eligible = flag_pages(&p, &at, &its, mask ? mask + row_offset(&p.mask, 0, head * GROUP, 0) : 0, &s);
    score_pages(&p, &at, q, &its, signatures, head, tables, &s);
    make_keys(&p, &at);
    const uint picked = min(p.count, eligible);
    mark_picked(&at, picked, &s);
    const uint missing = list_missing(&at, p.index.frame_count, &s);
    const uint filled = min(missing, drop_frames(&p, &at, &its, &s));
    fill_frames(&p, &at, &its, filled, &s);
    if (LANE > 0) return;
    __global ulong* const its_counts = (__global ulong*)of_head(counts, &p.counts, head);
    its_counts[0] += picked;
    its_counts[1] += filled;
}
