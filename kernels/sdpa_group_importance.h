/* What a step of decoding does with what its attention showed, in groups of many work-items: each group leaves the
 * weights of its keys, and the last group of the work tile, or the second launch, accumulates them into the importance
 * of the KV head's slots. The places are those of sdpa_importance.h, whose keys come in tiles of 32; a key that a row
 * does not see has -INFINITY there. Needs before it: sdpa_group_state.h, STEP and with it STATISTIC and
 * slot_statistic.h. */
#if STEP && STATISTIC
#define WEIGHT_KEYS 32
#define WEIGHT_TILE_FLOATS (16 + ROWS * WEIGHT_KEYS)
#define WEIGHT_TILES(p) (((p)->key_end + 2 * WEIGHT_KEYS - 1) / (2 * WEIGHT_KEYS) * 2)

static inline __global float* group_weight_tile(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                                uint segment, uint key) {
    return (__global float*)(memory->step_weights + p->step.weights_offset) +
           ((ulong)g->work.index * WEIGHT_TILES(p) + (p->segment[segment].first_key + key) / WEIGHT_KEYS) *
               WEIGHT_TILE_FLOATS;
}

/* What is left of a key. */
static inline float weight_left(int is_hidden, float score, float weight) {
    return is_hidden ? -INFINITY : STATISTIC == SCORE_MAGNITUDE ? score : weight;
}

/* Leaves what a row has of a key; with the first key of a tile, the maximum that its weights were made with. */
ALWAYS_INLINE void group_leave(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint segment,
                               uint key, uint r, float maximum, int is_hidden, float score, float weight) {
    if (!p->step.counts_query) return;
    __global float* weight_tile = group_weight_tile(p, memory, g, segment, key);
    weight_tile[16 + r * WEIGHT_KEYS + key % WEIGHT_KEYS] = weight_left(is_hidden, score, weight);
    if (key % WEIGHT_KEYS == 0) weight_tile[r] = maximum;
}

/* One row's statistic of a key, joined with what the rows before it gave; NaN stays. */
static inline float group_join(float x, float weight, float factor, float limit) {
    const float probability = weight * factor;
    const float y = STATISTIC == SCORE_MAGNITUDE       ? weight
                    : STATISTIC == PROBABILITY         ? probability
                    : STATISTIC == PROBABILITY_SQUARED ? probability * probability
                    : probability >= limit             ? 1.0f
                                                       : 0.0f;
    return x + y;
}

/* Of above-the-mean: 1 / the number of keys that each row sees, into rescale. */
ALWAYS_INLINE void group_count_seen(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    uint count = 0;
    if (LANE_ROW < ROWS)
        for (uint i = 0; i < SEGMENTS; ++i) {
            if (!sdpa_has_head(&p->segment[i], g->work.kv_head)) continue;
            for (uint slot = LANE_OF_ROW; slot < p->segment[i].slots; slot += ROW_LANES)
                count += group_weight_tile(p, memory, g, i, slot)[16 + LANE_ROW * WEIGHT_KEYS + slot % WEIGHT_KEYS] !=
                         -INFINITY;
        }
    count = count_of_row(g, count);
    if (LANE_ROW < ROWS && LANE_OF_ROW == 0) g->rescale[LANE_ROW] = 1.0f / (float)count;
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* maximum, factor: how each row ends; [ROWS]. Of `parts` groups each has some of the slots. */
ALWAYS_INLINE void group_importance(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                    const __local float* maximum, const __local float* factor, uint part, uint parts) {
    const sdpa_step* step = &p->step;
    if (!step->counts_query) return;
    const uint rows = g->work.rows;
    if (STATISTIC == ABOVE_MEAN) group_count_seen(p, memory, g);
    for (uint i = 0; i < SEGMENTS; ++i) {
        const sdpa_segment* segment = &p->segment[i];
        if (!sdpa_has_head(segment, g->work.kv_head)) continue;
        __global float* importance = (__global float*)(memory->importance[i] + segment->importance.offset +
                                                       g->work.kv_head * segment->importance.stride);
        for (uint slot = part * GROUP_SIZE + LANE; slot < segment->slots; slot += parts * GROUP_SIZE) {
            const __global float* weight_tile = group_weight_tile(p, memory, g, i, slot);
            float x = 0.0f;
            int is_seen = 0;
            for (uint r = 0; r < rows; ++r) {
                const float weight = weight_tile[16 + r * WEIGHT_KEYS + slot % WEIGHT_KEYS];
                if (weight == -INFINITY) continue;
                is_seen = 1;
                x = group_join(x, weight, exp1(weight_tile[r] - maximum[r]) * factor[r], g->rescale[r]);
            }
            if (!is_seen) continue;
            if (STATISTIC == SCORE_MAGNITUDE) x = fabs(x);
            const float before = step->keep == 0.0f ? 0.0f : importance[slot]; /* which may be NaN */
            importance[slot] = fma(before, step->keep, x * step->gain);
        }
    }
    if (!memory->output_sum || part > 0) return;
    /* The rows of out have just been stored. */
    barrier(CLK_GLOBAL_MEM_FENCE);
    __global float* to =
        (__global float*)(memory->output_sum + step->output_sum.offset + g->work.kv_head * step->output_sum.stride);
    for (uint e = LANE; e < V_HEAD_SIZE; e += GROUP_SIZE) {
        float total = to[e];
        for (uint r = 0; r < rows; ++r) total += load_any(out_row(p, memory, &g->work, r), p->out_type, e);
        to[e] = total;
    }
}
#else
#define group_leave(p, memory, g, segment, key, r, maximum, is_hidden, score, weight)
#define group_importance(p, memory, g, maximum, factor, part, parts)
#endif
