/* What a step of decoding does with what its attention showed: each group leaves the weights of its keys, as it has
 * them, and the last group of the work tile accumulates them into the importance of the KV head's slots, once the rows'
 * maxima and sums are known. Elsewhere the hooks of the attention loop do nothing. Needs before it: sdpa_memory.h,
 * sdpa_work_tile.h, sdpa_tile.h, vector_parts.h, STEP and with it STATISTIC, slot_statistic.h and slot_outputs.h.
 *
 *     step weights: [work tiles][tiles of all segments, an even number]
 *     weight tile = float maximum[8]    of the rows (ROWS is 8 at most) when the weights were made
 *                   uint seen[8]        the keys that each row sees, a bit each
 *                   float weight[ROWS][TILE], or with SCORE_MAGNITUDE the scores; of unseen keys anything finite
 *
 * Both are compiled for one statistic; without one they are the hooks that do nothing. A row's probability of a key is
 * weight x exp(maximum - last maximum) / sum: one exponential for a row and weight tile, where from a score it would
 * take one for a row and key. */
#if STEP && STATISTIC
#define WEIGHT_TILE_VECTORS (1 + ROWS * TILE_VECTORS)
#define WEIGHT_TILES(p) (((p)->key_end + 2 * TILE - 1) / (2 * TILE) * 2) /* in pairs */
#define ROWS_OF_TILE(work) (ROWS == 8 ? (work)->rows : ROWS)             /* a block of 8 may have 7 */

/* How the rows of a work tile end: lane r is that of row r. */
typedef struct sdpa_rows_end {
    float maximum[16]; /* over all keys */
    float factor[16];  /* of what was added up with that maximum; 0 where a row saw no key */
} sdpa_rows_end;

/* The lanes of 8 that belong to no row are computed with, too. */
static inline void sdpa_begin_end(sdpa_rows_end* end) {
    vstore8((float8)(0.0f), 0, end->maximum);
    vstore8((float8)(0.0f), 0, end->factor);
}

static inline void sdpa_note_end(sdpa_rows_end* end, uint r, float maximum, float factor) {
    end->maximum[r] = maximum;
    end->factor[r] = factor;
}

/* The weight tile of the keys of a segment from `key` on. */
static inline __global float16* sdpa_weight_tile(const sdpa_params* p, const sdpa_memory* memory,
                                                 const sdpa_work_tile* work, uint segment, uint key) {
    return (__global float16*)(memory->step_weights + p->step.weights_offset) +
           ((ulong)work->index * WEIGHT_TILES(p) + (p->segment[segment].first_key + key) / TILE) * WEIGHT_TILE_VECTORS;
}

/* Leaves what the rows see of a tile. maximum: [16]. */
static inline void sdpa_leave_seen(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                   uint segment, uint key, const float* maximum, const sdpa_seen* seen) {
    if (!p->step.counts_query) return;
    __global float16* weight_tile = sdpa_weight_tile(p, memory, work, segment, key);
    float16 first = vload16(0, maximum);
    first.hi = as_float8((uint8)(seen->by_any));
    *weight_tile = first;
    if (seen->by_any == seen->by_all) return;
    for (uint r = 0; r < ROWS; ++r) {
        uint of_row = 0;
        for (uint i = 0; i < TILE_VECTORS; ++i)
            of_row |= bits_of_lanes(vload16(r * TILE_VECTORS + i, seen->lanes)) << i * 16;
        ((__global uint*)weight_tile)[8 + r] = of_row;
    }
}

/* Leaves the scores of a tile, or the weights that they become: which of them the statistic is of. s: [ROWS][TILE]. */
static inline void sdpa_leave(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work, uint segment,
                              uint key, const float16* s, int are_scores) {
    if (!p->step.counts_query || (STATISTIC == SCORE_MAGNITUDE) != are_scores) return;
    __global float16* weight_tile = sdpa_weight_tile(p, memory, work, segment, key) + 1;
#pragma unroll
    for (uint i = 0; i < ROWS * TILE_VECTORS; ++i) weight_tile[i] = s[i];
}

/* One row's weights, or scores, joined with what the rows before it gave; NaN stays. */
static inline float16 join_row(float16 x, float16 weight, float factor, float limit) {
#if STATISTIC == SCORE_MAGNITUDE
    return x + weight;
#elif STATISTIC == PROBABILITY
    return fma(weight, (float16)(factor), x);
#else
    const float16 p = weight * factor;
    return STATISTIC == PROBABILITY_SQUARED ? fma(p, p, x) : x + select((float16)(0.0f), (float16)(1.0f), p >= limit);
#endif
}

/* Where nothing is kept of the importance before, that may be NaN, too. */
static inline float16 accumulate16(float16 importance, float16 x, float keep, float gain) {
    return fma(keep == 0.0f ? (float16)(0.0f) : importance, (float16)(keep),
               (STATISTIC == SCORE_MAGNITUDE ? fabs(x) : x) * gain);
}

/* Stores past 16 bytes at a time, as which some implementations take vstore16. */
typedef float16 __attribute__((aligned(4))) float16_anywhere;

/* Accumulates vectors of a weight tile that every row sees all of into the importance of their slots. factors, limits:
 * [rows]. */
static inline void accumulate_seen(const sdpa_step* step, const uint rows, __global float16_anywhere* importance,
                                   const uint vectors, const __global float16* weights, const __global float* factors,
                                   const float* limits) {
#pragma unroll
    for (uint i = 0; i < TILE_VECTORS; ++i) {
        if (i >= vectors) break;
        float16 x = (float16)(0.0f);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r)
            if (r < rows) x = join_row(x, weights[r * TILE_VECTORS + i], factors[r], limits[r]);
        importance[i] = accumulate16(importance[i], x, step->keep, step->gain);
    }
}

/* Accumulates any vectors from `first` on, by the keys that each row sees; `count` of the weight tile's slots exist.
 * seen: [rows]. */
static inline void accumulate_part(const sdpa_step* step, const uint rows, __global float* importance, uint first,
                                   uint count, const __global float16* weights, const __global uint* seen,
                                   const __global float* factors, const float* limits) {
    for (uint i = first; i * 16 < count; ++i) {
        float16 x = (float16)(0.0f);
        int16 is_seen = 0;
        for (uint r = 0; r < rows; ++r) {
            const int16 by_row = ((int16)((int)(seen[r] >> i * 16)) & LANE_BITS) != 0;
            const float16 weight = weights[r * TILE_VECTORS + i];
            x = select(x, join_row(x, weight, factors[r], limits[r]), by_row);
            is_seen |= by_row;
        }
        const uint part = min(count - i * 16, 16u);
        const float16 before = load_floats(importance + i * 16, part, 0.0f);
        const float16 after = accumulate16(before, x, step->keep, step->gain);
        store_floats(importance + i * 16, part, select(before, after, is_seen));
    }
}

/* 1 / the number of keys that each row sees. */
static inline void sdpa_count_seen(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                   uint rows, float* limits) {
    uint count[ROWS];
    for (uint r = 0; r < rows; ++r) count[r] = 0;
    for (uint i = 0; i < SEGMENTS; ++i) {
        if (!sdpa_has_head(&p->segment[i], work->kv_head)) continue;
        for (uint slot = 0; slot < p->segment[i].slots; slot += TILE) {
            const __global uint* seen = (const __global uint*)sdpa_weight_tile(p, memory, work, i, slot) + 8;
            for (uint r = 0; r < rows; ++r) count[r] += popcount(seen[r]);
        }
    }
    for (uint r = 0; r < rows; ++r) limits[r] = 1.0f / (float)count[r];
}

/* Puts factors of weights into the place of the maxima: two weight tiles at once fill a vector. */
static inline void sdpa_make_factors(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                     const sdpa_rows_end* end) {
    const float8 maximum = vload8(0, end->maximum), factor = vload8(0, end->factor);
    __global float16* weight_tile = sdpa_weight_tile(p, memory, work, 0, 0);
    for (uint pair = 0; pair < WEIGHT_TILES(p); pair += 2, weight_tile += 2 * WEIGHT_TILE_VECTORS) {
        const float16 before = (float16)(weight_tile[0].lo, weight_tile[WEIGHT_TILE_VECTORS].lo);
        const float16 factors = exp16(before - (float16)(maximum, maximum)) * (float16)(factor, factor);
        weight_tile[0].lo = factors.lo;
        weight_tile[WEIGHT_TILE_VECTORS].lo = factors.hi;
    }
}

/* What the last group of a work tile does when its rows are done. */
OUT_OF_LINE static void sdpa_importance(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                        const sdpa_rows_end* end) {
    const sdpa_step* step = &p->step;
    const uint rows = ROWS_OF_TILE(work);
    if (!step->counts_query) return;
    float limits[ROWS];
    for (uint r = 0; r < rows; ++r) limits[r] = 0.0f;
    if (STATISTIC == ABOVE_MEAN) sdpa_count_seen(p, memory, work, rows, limits);
    sdpa_make_factors(p, memory, work, end);
    for (uint i = 0; i < SEGMENTS; ++i) {
        const sdpa_segment* segment = &p->segment[i];
        if (!sdpa_has_head(segment, work->kv_head)) continue;
        __global float* importance = (__global float*)(memory->importance[i] + segment->importance.offset +
                                                       work->kv_head * segment->importance.stride);
        const __global float16* weight_tile = sdpa_weight_tile(p, memory, work, i, 0);
        for (uint slot = 0; slot < segment->slots; slot += TILE, weight_tile += WEIGHT_TILE_VECTORS) {
            const __global float* factors = (const __global float*)weight_tile;
            const __global uint* seen = (const __global uint*)weight_tile + 8;
            uint by_all = seen[0];
#pragma unroll
            for (uint r = 1; r < ROWS; ++r) by_all &= seen[r];
            const uint count = min(segment->slots - slot, (uint)TILE);
            const uint whole = by_all == BITS_OF_TILE(count) ? count / 16 : 0; /* vectors */
            if (whole * 16 < count)
                accumulate_part(step, rows, importance + slot, whole, count, weight_tile + 1, seen, factors, limits);
            accumulate_seen(step, rows, (__global float16_anywhere*)(importance + slot), whole, weight_tile + 1,
                            factors, limits);
        }
    }
    /* Last, because these rows have just been stored. */
    if (memory->output_sum)
        add_outputs(
            (__global float*)(memory->output_sum + step->output_sum.offset + work->kv_head * step->output_sum.stride),
            memory->out, &p->out, p->out_type, work->head[0], rows, 1, V_HEAD_SIZE);
}

#else
typedef char sdpa_rows_end;
#define sdpa_begin_end(end)
#define sdpa_note_end(end, r, maximum, factor)
#define sdpa_importance(p, memory, work, end)
#define sdpa_leave(p, memory, work, segment, key, s, are_scores)
#define sdpa_leave_seen(p, memory, work, segment, key, maximum, seen)
#endif
