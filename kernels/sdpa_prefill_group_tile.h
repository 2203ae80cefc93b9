/* What a group of sdpa_prefill_workgroup.cl does with a tile of keys beside reading K and V: it says which of its keys
 * the rows see, makes scores of logits, and weights of scores. Needs before it: sdpa_prefill_group_state.h,
 * sdpa_group_shown.h and float16_math.h. */

/* ---- Classify ---- */

/* What is done with a tile: nothing, as no row sees a key of it; everything; or, where every row sees every key and a
 * logit is nothing but the inner product, no more than the products. */
#define TILE_SKIPPED 0
#define TILE_MIXED 1
#define TILE_CLEAR 2

/* Whether logits are taken as they are where no mask adds to them; the same for the whole launch. */
ALWAYS_INLINE int takes_plain_logits(const sdpa_params* p) {
    return !p->has_alibi && !p->has_slopes && p->softcap == 0.0f && p->scores_mode == SDPA_SCORES_NONE;
}

/* By causality and window alone, of keys whose positions are their indices. */
ALWAYS_INLINE int classify_by_index(const sdpa_params* p, const __local group_state* g, uint key, uint count) {
    if ((int)key >= g->work.any_end || (int)(key + count) <= g->work.any_begin) return TILE_SKIPPED;
    if ((int)key < g->work.all_begin || (int)(key + count) > g->work.all_end) return TILE_MIXED;
    return takes_plain_logits(p) ? TILE_CLEAR : TILE_MIXED;
}

/* The position of key t of a tile, or a negative number where there is none. */
ALWAYS_INLINE int tile_position(const __global int* slots, uint key, uint t, uint count) {
    if (t >= count) return -1;
#if SLOTS
    return slots[key + t] & ~(1 << 30); /* an anchor's flag; what is negative remains so */
#else
    return (int)(key + t);
#endif
}

/* What the mask adds to a logit, where causality and window show the key. */
ALWAYS_INLINE float prefill_mask(const sdpa_params* p, const sdpa_memory* memory, const __local group_state* g, uint r,
                                 int position) {
    const uint column = p->mask_key_broadcast ? 0u : (uint)position;
    if (SLOTS && column >= p->mask_columns) return -INFINITY;
    return mask_element(memory->mask + g->mask_at[r], p->mask_type, column);
}

/* By slots and mask; what the mask adds comes into parts. All work-items call it; it begins and ends with a barrier. */
ALWAYS_INLINE int classify_by_reading(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                      const __global int* slots, uint key, uint count, prefill_lane* of_lane) {
    const uint turn = of_lane->turn;
    of_lane->turn = 1 - turn;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE == 0) g->is_any[1 - turn] = g->is_unlike[1 - turn] = 0;
    const uint t = LANE % TILE;
    const int position = tile_position(slots, key, t, count);
    int is_any = 0, is_unlike = 0;
    if (p->mask_type == TYPE_NONE) {
        is_any = position >= g->work.any_begin && position < g->work.any_end;
        is_unlike = position < g->work.all_begin || position >= g->work.all_end;
    } else {
        for (uint r = LANE / TILE; r < ROWS; r += GROUP_SIZE / TILE) {
            float bias = -INFINITY;
            if (position >= g->work.see_begin[r] && position < g->work.see_end[r])
                bias = prefill_mask(p, memory, g, r, position);
            g->parts[0][r * S_STRIDE + t] = bias;
            is_any |= bias != -INFINITY;
            is_unlike |= !(bias == 0.0f);
        }
    }
    if (t < count) {
        if (LANE < TILE) g->position[t] = position;
        if (is_any) g->is_any[turn] = 1;
        if (is_unlike) g->is_unlike[turn] = 1;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!g->is_any[turn]) return TILE_SKIPPED;
    return g->is_unlike[turn] || !takes_plain_logits(p) ? TILE_MIXED : TILE_CLEAR;
}

ALWAYS_INLINE int prefill_classify(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                   const __global int* slots, uint key, uint count, prefill_lane* of_lane) {
    if (!SLOTS) {
        const int by_index = classify_by_index(p, g, key, count);
        if (by_index == TILE_SKIPPED || p->mask_type == TYPE_NONE) return by_index;
    }
    return classify_by_reading(p, memory, g, slots, key, count, of_lane);
}

/* ---- Transforms ---- */

/* Puts a lane's logits where its rows and keys are. sums: [LANE_ROWS][LANE_KEYS]; to: [ROWS][S_STRIDE]. Past the last
 * key there are none. */
ALWAYS_INLINE void leave_logits(const sdpa_params* p, const __local group_state* g, uint count, const float* sums,
                                __local float* to) {
#pragma unroll
    for (uint i = 0; i < LANE_ROWS; ++i) {
        const uint r = GRID_ROW + i * 8;
        const float from_mean = g->from_mean[r];
#pragma unroll
        for (uint j = 0; j < LANE_KEYS; ++j) {
            const uint t = GRID_COLUMN + j * 16;
            to[r * S_STRIDE + t] = t < count ? fma(sums[i * LANE_KEYS + j], p->scale, from_mean) : -INFINITY;
        }
    }
}

/* The inner products of a lane become scores, in parts. It begins with a barrier if the tile is mixed. */
ALWAYS_INLINE void prefill_transform(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint key,
                                     uint count, const int is_clear, const float* sums) {
    if (is_clear) {
        leave_logits(p, g, count, sums, g->parts[0]);
        return;
    }
    barrier(CLK_LOCAL_MEM_FENCE); /* all have read the stage */
    leave_logits(p, g, count, sums, g->stage);
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint t = LANE % TILE;
    const int position = SLOTS ? g->position[t] : (int)(key + t);
    for (uint r = LANE / TILE; r < ROWS; r += GROUP_SIZE / TILE) {
        __local float* s = g->parts[0] + r * S_STRIDE + t;
        const int is_in_range = position >= g->work.see_begin[r] && position < g->work.see_end[r];
        const float bias = !is_in_range ? -INFINITY : p->mask_type != TYPE_NONE ? *s : 0.0f;
        float shown = -INFINITY;
        if (t < count) shown = group_shown(p, memory, g, r, key + t, position, bias, g->stage[r * S_STRIDE + t]);
        *s = shown;
    }
}

/* ---- Softmax ---- */

/* The weight of a key that a row does not see: it adds nothing to a sum, and can be told from a weight of 0, with which
 * what is infinite or no number counts. */
#define HIDDEN_WEIGHT (-0.0f)
static inline int is_hidden_weight(float weight) { return as_int(weight) == (int)0x80000000; }

/* A tile's scores become weights exp(score - maximum so far); rescale is what was added up with an earlier one needs.
 * After a barrier; another one has to follow. */
ALWAYS_INLINE void prefill_softmax(__local group_state* g, prefill_lane* of_lane) {
    __local float4* s = (__local float4*)(g->parts[0] + LANE_ROW * S_STRIDE) + LANE_OF_ROW;
    float4 scores[TILE / 4 / ROW_LANES];
    float highest = of_lane->maximum;
#pragma unroll
    for (uint i = 0; i < TILE / 4 / ROW_LANES; ++i) {
        const float4 x = s[i * ROW_LANES];
        scores[i] = x;
        highest = x.x > highest ? x.x : highest; /* which NaN is not */
        highest = x.y > highest ? x.y : highest;
        highest = x.z > highest ? x.z : highest;
        highest = x.w > highest ? x.w : highest;
    }
    g->by_lane[LANE] = highest;
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < ROW_LANES; ++i) {
        const float other = g->by_lane[LANE_ROW * ROW_LANES + i];
        highest = other > highest ? other : highest;
    }
    const float rescale = exp1(of_lane->maximum - highest);
    float sum = of_lane->sum * rescale;
#pragma unroll
    for (uint i = 0; i < TILE / 4 / ROW_LANES; ++i) {
        const float x[4] = {scores[i].x, scores[i].y, scores[i].z, scores[i].w};
        float weights[4];
#pragma unroll
        for (uint j = 0; j < 4; ++j) {
            const int is_hidden = x[j] == -INFINITY;
            weights[j] = is_hidden ? HIDDEN_WEIGHT : exp1(x[j] - highest);
            sum += weights[j];
        }
        s[i * ROW_LANES] = (float4)(weights[0], weights[1], weights[2], weights[3]);
    }
    of_lane->maximum = highest;
    of_lane->sum = sum;
    if (LANE_OF_ROW == 0) {
        g->rescale[LANE_ROW] = rescale;
        g->sum[LANE_ROW] *= rescale;
        for (uint i = 0; i < SEGMENTS; ++i) g->segment_weights[i][LANE_ROW] *= rescale;
    }
}
