/* Several packed segments: how rows of one go down to the next. TIERS of them, at most 3; the first is what
 * slot_evict.cl has without the others. Needs before it: what slot_evict.cl has before it, and slot_head.h. */
#if TIERS == 1
static inline float tier_distance(const head_slots* at, const __global uchar* row, uint size) {
    return packed_distance(row, at->v_type, at->point, size);
}
static inline void rotate_point_of(const head_slots* at) { rotate_point(at->point); }
#else
#define TIER 1
#include "slot_tier.h"
#undef TIER
#define TIER 2
#include "slot_tier.h"
#undef TIER
#if TIERS > 2
#define TIER 3
#include "slot_tier.h"
#undef TIER
/* The arguments in parentheses: OpenCL C has no macros with any number of them. */
#define OF_TIER(at, name, arguments)                                                                                   \
    ((at)->tier == 3 ? name##_3 arguments : (at)->tier == 2 ? name##_2 arguments : name arguments)
#else
#define OF_TIER(at, name, arguments) ((at)->tier == 2 ? name##_2 arguments : name arguments)
#endif

static inline float tier_distance(const head_slots* at, const __global uchar* row, uint size) {
    return OF_TIER(at, packed_distance, (row, at->v_type, at->point, size));
}

static inline void rotate_point_of(const head_slots* at) { OF_TIER(at, rotate_point, (at->point)); }

/* The f32 row that a packed row is, in the head's memory for one. */
static const __global uchar* read_row(const head_slots* at, uint slot, uint is_key, uint size, __global float* row) {
    const __global uchar* from = is_key ? at->k + slot * at->k_stride : at->v + slot * at->v_stride;
    __global uchar* to = (__global uchar*)row;
#if TIERS > 2
    if (at->tier == 2 && is_key) read_k_row_2(to, from, size, 0);
    if (at->tier == 2 && !is_key) read_v_row_2(to, from, size, 0);
#endif
    if (at->tier == 1 && is_key) read_k_row_1(to, from, size, 0);
    if (at->tier == 1 && !is_key) read_v_row_1(to, from, size, 0);
    return to;
}

/* One row into the place of another one in a lower segment. Packed segments have the same means. row: for the row in
 * f32. */
static void move_k_down(const slot_evict_params* p, const head_slots* from, uint slot, const head_slots* to,
                        uint free_slot, __global float* row) {
    const uint is_dense = from->tier == 0;
    const __global uchar* k = is_dense ? from->k + slot * from->k_stride : read_row(from, slot, 1, p->k_size, row);
    OF_TIER(to, store_k_row,
            (to->k + free_slot * to->k_stride, k, 0, is_dense ? to->k_mean : 0,
             is_dense ? p->dense.k_type : TYPE_F32, p->k_size, p->k_norm));
}

static void move_v_down(const slot_evict_params* p, const head_slots* from, uint slot, const head_slots* to,
                        uint free_slot, __global float* row) {
    const uint is_dense = from->tier == 0;
    const __global uchar* v = is_dense ? from->v + slot * from->v_stride : read_row(from, slot, 0, p->v_size, row);
    OF_TIER(to, store_v_row,
            (to->v + free_slot * to->v_stride, v, 0, is_dense ? to->v_mean : 0,
             is_dense ? p->dense.v_type : TYPE_F32, p->v_size, p->v_norm));
}

static void move_entry_down(const head_slots* from, uint slot, const head_slots* to, uint free_slot) {
    if (to->importance) to->importance[free_slot] = from->importance ? from->importance[slot] : 0.0f;
    to->tokens[free_slot] = from->tokens[slot];
    from->tokens[slot] = FREE_SLOT;
}

/* The keys among which those that move down are found: of what leaves the residual window beside the first of the
 * packed segments, and of the segment's own rows. */
static inline slot_keys moving_keys(const head_slots* dense, const head_slots* from,
                                    const __global ulong* leaving_keys) {
    const uint has_dense = from->tier == 1, first = in_whole_vectors(dense->slots);
    slot_keys keys;
    for (uint r = 0; r < KEY_RUNS; ++r) {
        keys.run[r] = leaving_keys;
        keys.count[r] = 0;
        keys.index[r] = 0;
    }
    if (has_dense) keys.count[0] = first;
    keys.run[1] = from->keys;
    keys.count[1] = in_whole_vectors(from->slots);
    keys.index[1] = first;
    return keys;
}
#endif
