/* The stage "transforms": what becomes of a logit between the inner product and the softmax, in this order: softcap,
 * mask, ALiBi; and which keys each row sees after all of it. Needs before it: float16_math.h, sdpa_tile.h,
 * sdpa_tensor_rows.h, sdpa_scores.h and ROWS_TAKEN. */

static inline float16 softcapped(const sdpa_params* p, float16 s) {
    return p->softcap != 0.0f ? p->softcap * tanh16(s / p->softcap) : s;
}

/* bias: what the mask gave. */
static inline float16 masked(const sdpa_params* p, const sdpa_memory* memory, uint head, float16 s, float16 bias) {
    return s + (p->has_slopes ? per_head(memory->slopes, p->slopes_offset, head) * bias : bias);
}

static inline float16 with_alibi(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work, uint r,
                                 float16 s, int16 position) {
    /* A difference of integers first: it is exact where the query's position is within 2^30, as a key's is. */
    const long query = Q_OFFSET(p, work) + (long)work->token[r];
    const int near = (int)clamp(query, -(1L << 30), 1L << 30);
    const float16 distance = convert_float16(position - near) - (float)(query - near);
    return s + per_head(memory->alibi, p->alibi_offset, work->head[r]) * distance;
}

/* Takes 16 scaled logits of row r, for the keys from `key` of which `count` exist, through all of it, and stores the
 * scores that are wanted. Returns the logits, with NO_MAXIMUM for keys that are not seen; *visible is -1 in the lanes
 * that are. */
static inline float16 transform16(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work, uint r,
                                  uint key, uint count, int16 position, float16 logit, float16 bias, int16* visible) {
    const float16 capped = softcapped(p, logit);
    float16 s = capped;
    int16 is_seen = (position >= work->see_begin[r]) & (position < work->see_end[r]);
    if (p->mask_type != TYPE_NONE) {
        is_seen &= bias != -INFINITY;
        s = masked(p, memory, work->head[r], s, bias);
    }
    if (p->has_alibi) s = with_alibi(p, memory, work, r, s, position);
    is_seen &= s != -INFINITY;
    store_scores16(p, memory, work, r, key, count, logit, capped, s, is_seen);
    *visible = is_seen;
    return select((float16)(NO_MAXIMUM), s, is_seen);
}

/* Whether a logit hides its key. s: [ROWS][TILE_VECTORS]. */
static inline int has_hiding_logit(const sdpa_work_tile* work, const float16* s) {
    int16 is_hiding = (int16)(0);
    for (uint i = 0; i < ROWS_TAKEN(work) * TILE_VECTORS; ++i) is_hiding |= s[i] == -INFINITY;
    return any_lane(is_hiding);
}

/* position: [TILE_VECTORS]; bias, s: [ROWS][TILE_VECTORS]. */
static inline void sdpa_transform(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                  const sdpa_tile* tile, const int16* position, const float16* bias, float16* s,
                                  sdpa_seen* seen) {
    seen->by_any = seen->by_all = BITS_OF_TILE(tile->count);
    seen->is_partial = !seen->all || tile->count < TILE;
    if (!changes_logits(p) && !seen->is_partial && !has_hiding_logit(work, s)) {
        store_tile_scores(p, memory, work, tile, s);
        return;
    }
    key_set by_any = 0, by_all = 0;
    for (uint i = 0; i < TILE_VECTORS; ++i) {
        const uint part = part_of_tile(tile->count, i);
        int16 any = 0, all = -1;
        for (uint r = 0; r < ROWS_TAKEN(work); ++r) {
            const uint at = r * TILE_VECTORS + i;
            int16 visible;
            s[at] = transform16(p, memory, work, r, tile->key + i * 16, part, position[i], s[at], bias[at], &visible);
            vstore16(visible, at, seen->lanes);
            any |= visible;
            all &= visible;
        }
        by_any |= (key_set)bits_of_lanes(any) << i * 16;
        by_all |= (key_set)bits_of_lanes(all) << i * 16;
    }
    seen->is_partial |= by_all != BITS_OF_TILE(tile->count);
    seen->by_any = by_any;
    seen->by_all = by_all;
}
