/* What a group of many work-items does with a tile of keys, between reading K and reading V. Everything goes key by key
 * and row by row, an element for a work-item. Needs before it: sdpa_group_shown.h and
 * sdpa_group_importance.h. */

/* ---- Classify ---- */

/* What the mask adds to a key's logit; without slots its column is the key's index, with slots the position. */
static inline float group_mask(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint r,
                               int position) {
    if (p->mask_type == TYPE_NONE) return 0.0f;
    const uint column = p->mask_key_broadcast ? 0u : (uint)position;
    if (SLOTS && column >= p->mask_columns) return -INFINITY;
    return mask_element(mask_row(p, memory, &g->work, r), p->mask_type, column);
}

/* Whether every row sees all of these keys, and a logit is nothing but the inner product. */
ALWAYS_INLINE int sees_all_plainly(const sdpa_params* p, const __local group_state* g, uint key, uint count) {
    if (SLOTS || p->mask_type != TYPE_NONE || p->has_alibi || p->softcap != 0.0f) return 0;
    return (int)key >= g->work.all_begin && (int)(key + count) <= g->work.all_end;
}

/* Such a tile is not classified, and is_partial says whether some logit is -infinity. */
ALWAYS_INLINE int group_is_clear(const sdpa_params* p, __local group_state* g, uint key, uint count) {
    if (!sees_all_plainly(p, g, key, count)) return 0;
    if (LANE == 0) g->is_partial = 0;
    for (uint t = LANE; t < count; t += GROUP_SIZE) g->seen[t] = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    return 1;
}

/* Which of a tile's keys the rows see, as far as causality, window and mask say it; what the mask adds comes into s. */
ALWAYS_INLINE void group_classify(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                  const __global int* slots, uint key, uint count) {
    if (LANE == 0) g->is_any = g->is_partial = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = LANE; t < count; t += GROUP_SIZE) {
#if SLOTS
        const int position = slots[key + t] & ~(1 << 30); /* an anchor's flag; what is negative remains so */
#else
        const int position = (int)(key + t);
#endif
        int by_any = 0, by_all = 1;
        for (uint r = 0; r < ROWS; ++r) {
            float bias = -INFINITY;
            if (position >= g->work.see_begin[r] && position < g->work.see_end[r])
                bias = group_mask(p, memory, g, r, position);
            g->s[r * TILE + t] = bias;
            by_any |= bias != -INFINITY;
            by_all &= bias != -INFINITY;
        }
        g->position[t] = position;
        g->seen[t] = by_any;
        if (by_any) g->is_any = 1;
        if (!by_all) g->is_partial = 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* ---- Transforms ---- */

/* A logit as it is, where nothing is done with logits. */
ALWAYS_INLINE void group_plain(__local group_state* g, uint r, uint t, float logit) {
    if (g->s[r * TILE + t] == -INFINITY) return;
    if (logit == -INFINITY) g->is_partial = 1;
    g->s[r * TILE + t] = logit;
}

ALWAYS_INLINE void group_transform(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint r,
                                   uint key, uint t, float logit) {
    const float bias = g->s[r * TILE + t];
    const float shown = group_shown(p, memory, g, r, key + t, g->position[t], bias, logit);
    if (bias != -INFINITY && shown == -INFINITY) g->is_partial = 1;
    g->s[r * TILE + t] = shown;
}

/* ---- Softmax ---- */

/* What a lane has of its row so far. */
typedef struct lane_rows {
    float maximum; /* the row's */
    float sum;     /* of the weights of this lane's keys */
    uint skipped;  /* values of this lane's keys that the row sees and that are not added */
} lane_rows;

#define HIDDEN_WEIGHT (-1.0f)
static inline int is_hidden_weight(float weight) { return weight < 0.0f; }

/* Which values are not added under a threshold: those whose weight is below the limit in every row. A weight below the
 * threshold's share of the sum so far is below that of the whole. */
ALWAYS_INLINE void group_pass_over(const sdpa_params* p, __local group_state* g, uint count, lane_rows* of_lane) {
    const float sum = sum_of_row(g, of_lane->sum);
    if (LANE_ROW < ROWS && LANE_OF_ROW == 0) g->segment_sum[LANE_ROW] = p->v_threshold * BELOW_ROUNDING * sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint t = LANE; t < count; t += GROUP_SIZE) {
        int matters = 0;
        for (uint r = 0; r < ROWS; ++r) {
            const float weight = g->s[r * TILE + t];
            matters |= !is_hidden_weight(weight) && !(weight < g->segment_sum[r]);
        }
        if (g->seen[t] && !matters) g->seen[t] = IS_SKIPPED;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE_ROW < ROWS)
        for (uint t = LANE_OF_ROW; t < count; t += ROW_LANES)
            of_lane->skipped += g->seen[t] == IS_SKIPPED && !is_hidden_weight(g->s[LANE_ROW * TILE + t]);
    barrier(CLK_LOCAL_MEM_FENCE); /* of a tile that no row sees the values have none */
}

/* A tile's logits become weights exp(logit - maximum so far); rescale is what was added up with an earlier one needs.
 */
ALWAYS_INLINE void group_softmax(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint segment,
                                 uint key, uint count, const int is_clear, lane_rows* of_lane) {
    float highest = of_lane->maximum;
    if (LANE_ROW < ROWS)
        for (uint t = LANE_OF_ROW; t < count; t += ROW_LANES) {
            const float s = g->s[LANE_ROW * TILE + t];
            highest = s > highest ? s : highest;
        }
    const float maximum = maximum_of_row(g, highest);
    const float rescale = exp1(of_lane->maximum - maximum);
    of_lane->maximum = maximum;
    of_lane->sum *= rescale;
    if (LANE_ROW < ROWS) {
        if (LANE_OF_ROW == 0) g->rescale[LANE_ROW] = rescale;
        for (uint t = LANE_OF_ROW; t < count; t += ROW_LANES) {
            const float s = g->s[LANE_ROW * TILE + t];
            const int is_hidden = s == -INFINITY;
            const float weight = is_hidden ? HIDDEN_WEIGHT : exp1(s - maximum);
            if (is_clear && p->scores_mode != SDPA_SCORES_NONE) group_store_score(p, memory, g, LANE_ROW, key + t, s);
            g->s[LANE_ROW * TILE + t] = weight;
            if (!is_hidden) of_lane->sum += weight;
            group_leave(p, memory, g, segment, key + t, LANE_ROW, maximum, is_hidden, s, weight);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (p->v_threshold != 0.0f) group_pass_over(p, g, count, of_lane);
}
