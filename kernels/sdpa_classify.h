/* The stage "classify": which of a tile's keys the rows of a work tile see, as far as causality, window and mask say it
 * before there are logits. Needs before it: vector_parts.h, sdpa_tile.h, sdpa_tensor_rows.h, sdpa_mask.h and
 * ROWS_TAKEN. */

/* The positions of 16 keys from `key` on, of which `count` exist; negative where there is none. slots: the slot map. */
static inline int16 positions16(const __global int* slots, uint key, uint count) {
#if SLOTS
    return load_ints(slots + key, count, -1) & ~(1 << 30); /* an anchor's flag; what is negative remains so */
#else
    return select((int16)(-1), (int)key + LANE_INDEX, LANE_INDEX < (int)count);
#endif
}

/* As far as causality and window say. Of a tile cut short, `all` means the keys that there are. */
static inline void classify_positions(const sdpa_work_tile* work, const sdpa_tile* tile, const int16* position,
                                      sdpa_seen* seen) {
#if SLOTS
    int16 any_seen = 0, any_hidden = 0;
    for (uint i = 0; i < TILE_VECTORS; ++i) {
        any_seen |= (position[i] >= work->any_begin) & (position[i] < work->any_end);
        any_hidden |= ((position[i] < work->all_begin) | (position[i] >= work->all_end)) &
                      (LANE_INDEX < (int)part_of_tile(tile->count, i));
    }
    seen->none = !any_lane(any_seen);
    seen->all = !any_lane(any_hidden);
#else
    const int begin = (int)tile->key, end = (int)(tile->key + tile->count);
    seen->none = begin >= work->any_end || end <= work->any_begin;
    seen->all = begin >= work->all_begin && end <= work->all_end;
#endif
}

/* As far as the mask says, which is read into bias: [ROWS][TILE_VECTORS]. */
static inline void classify_mask(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                 const sdpa_tile* tile, const int16* position, float16* bias, sdpa_seen* seen) {
    int16 any_hidden = 0, any_shown = 0;
    int is_run[TILE_VECTORS];
    for (uint i = 0; i < TILE_VECTORS; ++i) is_run[i] = has_columns_side_by_side(p, position[i]);
    const __global uchar* last_row = 0;
    for (uint r = 0; r < ROWS_TAKEN(work); ++r) {
        const __global uchar* row = mask_row(p, memory, work, r);
        uint back = row == last_row ? 1 : 0; /* heads may share theirs */
        if (SLOTS && !back && r >= p->q_len && mask_row(p, memory, work, r - p->q_len) == row) back = p->q_len;
        last_row = row;
        if (back > 0) {
            for (uint i = 0; i < TILE_VECTORS; ++i) bias[r * TILE_VECTORS + i] = bias[(r - back) * TILE_VECTORS + i];
            continue;
        }
        for (uint i = 0; i < TILE_VECTORS; ++i) {
            const uint part = part_of_tile(tile->count, i);
            const float16 x = is_run[i] ? load16_f16(row, (uint)position[i].s0, p->mask_columns)
                                        : mask16(p, row, tile->key + i * 16, part, position[i]);
            bias[r * TILE_VECTORS + i] = x;
            any_hidden |= (x == -INFINITY) & (LANE_INDEX < (int)part);
            any_shown |= x != -INFINITY;
        }
    }
    seen->all &= !any_lane(any_hidden);
    seen->none |= !any_lane(any_shown);
}

/* position: [TILE_VECTORS], bias: [ROWS][TILE_VECTORS], filled where there is a mask and the tile needs it. */
static inline void sdpa_classify(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                 const sdpa_tile* tile, const __global int* slots, int16* position, float16* bias,
                                 sdpa_seen* seen) {
    for (uint i = 0; i < TILE_VECTORS; ++i)
        position[i] = positions16(slots, tile->key + i * 16, part_of_tile(tile->count, i));
    classify_positions(work, tile, position, seen);
    if (p->mask_type != TYPE_NONE && (!seen->none || scores_want_unseen(p)))
        classify_mask(p, memory, work, tile, position, bias, seen);
    seen->by_any = seen->by_all = 0;
}
