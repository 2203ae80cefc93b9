/* Several packed segments: which of a segment's rows go down to the next one. Needs before it: slot_tier_rows.h,
 * slot_select.h and count_free. */

static void move_down(const slot_evict_params* p, const head_slots* from, uint slot, const head_slots* to,
                      uint free_slot, __global float* row) {
    move_k_down(p, from, slot, to, free_slot, row);
    move_v_down(p, from, slot, to, free_slot, row);
    move_entry_down(from, slot, to, free_slot);
}

/* Keys by which rows go down, of those that are no victims: whether they are protected, rank, position; of the first
 * segment's rows and those that leave, where they move by age, without the rank. */
static void make_moving_keys(const slot_evict_params* p, const head_slots* at) {
    const ulong16 kept = (ulong16)(p->moves_by_age && at->tier <= 1 ? KEY_PROTECTED | KEY_POSITION : ~KEY_CLASS);
    for (uint slot = 0; slot < at->slots; slot += 16) {
        const int16 is_live = load_ints(at->tokens + slot, at->slots - slot, FREE_SLOT) >= 0;
        const ulong16 key = vload16(0, at->keys + slot);
        vstore16(select((ulong16)(NO_KEY), key & kept, convert_long16(is_live)), 0, at->keys + slot);
    }
}

/* Keys of the rows that leave the residual window and are no victims; returns how many there are. */
static uint make_leaving_keys(const slot_evict_params* p, const head_slots* dense, __global ulong* leaving_keys) {
    uint live = 0;
    make_moving_keys(p, dense);
    for (uint i = 0; i < in_whole_vectors(dense->slots); ++i) leaving_keys[i] = NO_KEY;
    for (uint i = 0; i < p->leaving_count; ++i) {
        const uint slot = residual_slot(p, i);
        leaving_keys[slot] = dense->keys[slot];
        live += dense->tokens[slot] >= 0;
    }
    return live;
}

static void move_rows_down(const slot_evict_params* p, const head_slots* dense, const head_slots* from,
                           const head_slots* to, const __global ulong* leaving_keys, uint count, __global float* row) {
    const uint has_dense = from->tier == 1, first = in_whole_vectors(dense->slots);
    const slot_keys keys = moving_keys(dense, from, leaving_keys);
    make_moving_keys(p, from);
    const slot_bound bound = smallest_slots(&keys, count);
    uint free_slot = 0;
    for (uint i = 0; has_dense && i < p->leaving_count; ++i) {
        const uint slot = residual_slot(p, i);
        if (!is_within(bound, leaving_keys[slot], slot)) continue;
        while (to->tokens[free_slot] >= 0) ++free_slot;
        move_down(p, dense, slot, to, free_slot, row);
    }
    for (uint slot = 0; slot < from->slots; ++slot) {
        if (!is_within(bound, from->keys[slot], first + slot)) continue;
        while (to->tokens[free_slot] >= 0) ++free_slot;
        move_down(p, from, slot, to, free_slot, row);
    }
}

/* Rows go down from each packed segment that lacks slots, the lowest first. */
static void make_room_in_tiers(const slot_evict_params* p, const head_slots* dense, const head_slots* packed,
                               __global ulong* leaving_keys, __global float* row) {
    const uint leaving = make_leaving_keys(p, dense, leaving_keys);
    long needed = leaving + max(p->wanted_free, p->wanted_first), others = leaving, free[TIERS], moved[TIERS];
    for (uint t = 0; t < TIERS; ++t) {
        free[t] = count_free(packed + t);
        moved[t] = min(max(needed - free[t], 0L), others + packed[t].slots - free[t]);
        needed = moved[t];
        others = 0;
    }
    moved[TIERS - 1] = 0;
    for (int t = TIERS - 2; t >= 0; --t) {
        moved[t] = min(moved[t], free[t + 1] + moved[t + 1]);
    }
    for (int t = TIERS - 2; t >= 0; --t)
        if (moved[t] > 0) move_rows_down(p, dense, packed + t, packed + t + 1, leaving_keys, (uint)moved[t], row);
}
