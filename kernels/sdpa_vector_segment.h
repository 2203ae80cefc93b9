/* sdpa_vector's code for one segment: its stages "logits" and "values", between which sdpa_attend_segment.h has the
 * others. Needs before it: the stages, the sizes of sdpa_vector.cl and SEGMENT. */
#pragma winnow repeatable

#include "sdpa_segment_rows.h"
#include "sdpa_factors.h"

/* ---- Logits ---- */

/* Rows of Q as the keys want to meet them. */
typedef struct segment_queries {
    float16 rows[ROWS * K_CHUNKS]; /* [ROWS][K_CHUNKS] */
    float sums[ROWS * K_GROUPS];   /* [ROWS][K_GROUPS], of the elements of a group; of biased keys alone */
} segment_queries;

static inline void sum_query_groups(const float16* q, float* sums) {
    for (uint g = 0; g < K_GROUPS; ++g) {
        float16 of_group = (float16)(0.0f);
        for (uint c = g * K_GROUP / 16; c < (g + 1) * K_GROUP / 16; ++c) of_group += q[c];
        sums[g] = sum_of_lanes(of_group);
    }
}

static inline void load_queries(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                segment_queries* q) {
    for (uint r = 0; r < ROWS; ++r) {
        load_query(q_row(p, memory, work, r), p->q_type, q->rows + r * K_CHUNKS);
        if (K_BIASED) sum_query_groups(q->rows + r * K_CHUNKS, q->sums + r * K_GROUPS);
    }
}

/* The inner products of ROWS_AT_ONCE rows from `first` on with four keys, of which the first is the tile's key `key`,
 * lane by lane, and requests for what comes later. sum: [ROWS_AT_ONCE][4]. */
static inline void dot_four(const segment_queries* q, uint first, const __global uchar* const* k,
                            const key_factors* of_keys, uint key, long near, long far, float16 (*sum)[4]) {
#pragma unroll
    for (uint r = 0; r < ROWS_AT_ONCE; ++r) sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = (float16)(0.0f);
#pragma unroll
    for (uint begin = 0; begin < 4; begin += KEYS_ABREAST)
#pragma unroll CHUNKS_AT_ONCE
        for (uint chunk = 0; chunk < K_CHUNKS; ++chunk) {
            float16 x[KEYS_ABREAST];
#pragma unroll
            for (uint j = 0; j < KEYS_ABREAST; ++j) {
                if (first == 0) PREFETCH_CHUNK(k[begin + j], chunk, K_ROW_BYTES, K_CHUNKS, near, far, K_PACKED);
                x[j] = load_scaled_codes(k[begin + j], chunk, of_keys, key + begin + j);
            }
#pragma unroll
            for (uint r = 0; r < ROWS_AT_ONCE; ++r)
#pragma unroll
                for (uint j = 0; j < KEYS_ABREAST; ++j)
                    sum[r][begin + j] = fma(x[j], q->rows[(first + r) * K_CHUNKS + chunk], sum[r][begin + j]);
        }
}

/* Inner products of all rows with the 16 keys of the tile's vector i, from `keys` on, asking for what comes later on
 * the way. `last` is the last of them that may be read: later ones repeat it. s: [ROWS], TILE_VECTORS apart. */
static inline void dot16(const segment_queries* q, const __global uchar* keys, long stride, const key_factors* of_keys,
                         uint i, uint last, long near, long far, float scale, float16* s) {
    float16 sums[ROWS * 4];
    for (uint four = 0; four < 4; ++four) {
        const uint key = i * 16 + four * 4;
        const __global uchar* k[4];
#pragma unroll
        for (uint j = 0; j < 4; ++j) k[j] = keys + (long)min(key + j, last) * stride;
        for (uint first = 0; first < ROWS; first += ROWS_AT_ONCE) {
            float16 sum[ROWS_AT_ONCE][4];
            dot_four(q, first, k, of_keys, key, near, far, sum);
#pragma unroll
            for (uint r = 0; r < ROWS_AT_ONCE; ++r)
                sums[(first + r) * 4 + four] = sum_lanes_of_4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        const float16 dot = sum_blocks_of_4(sums[r * 4], sums[r * 4 + 1], sums[r * 4 + 2], sums[r * 4 + 3]);
        s[r * TILE_VECTORS] = finish_dot(dot, q->sums + r * K_GROUPS, of_keys, i) * scale;
    }
}

/* Scores `count` keys element by element: where these must not be taken apart. s: [ROWS][TILE]. */
static inline void dot_elements(const segment_queries* q, const __global uchar* keys, long stride, uint count,
                                float scale, float* s) {
#pragma unroll 1
    for (uint t = 0; t < count; ++t)
#pragma unroll 1
        for (uint r = 0; r < ROWS; ++r) {
            float16 sum = (float16)(0.0f);
#pragma unroll 1
            for (uint chunk = 0; chunk < K_CHUNKS; ++chunk)
                sum = fma(load_whole_key(keys + (long)t * stride, chunk), q->rows[r * K_CHUNKS + chunk], sum);
            s[r * TILE + t] = sum_of_lanes(sum) * scale;
        }
}

static inline void sdpa_logits(const sdpa_params* p, const sdpa_work_tile* work, const sdpa_tile* tile,
                               const sdpa_segment_view* segment, const segment_queries* q, float16* s) {
    const long stride = segment->k_stride;
    const __global uchar* keys = segment->k + (long)tile->key * stride;
    const long near = near_keys(work, tile) * stride, far = far_keys(work, tile) * stride;
    key_factors of_keys;
    stage_key_factors(&of_keys, keys, stride, BITS_OF_TILE(tile->count));
    if (factors_are_finite(&of_keys))
        for (uint i = 0; i * 16 < tile->count; ++i)
            dot16(q, keys, stride, &of_keys, i, work->key_end - 1 - tile->key, near, far, p->scale, s + i);
    else
        dot_elements(q, keys, stride, tile->count, p->scale, (float*)s);
}

/* ---- Values ---- */

/* Adds weight x value of `count` keys to `size` chunks of the accumulator, after scaling it. weights:
 * [V_GROUPS][ROWS][TILE], with the factors of packed values in them; biases: [V_GROUPS][ROWS], what all elements of a
 * group get. */
static inline void add_values(float16* accumulator, const float* rescale, const float* weights, const float* biases,
                              const __global uchar* v, long stride, uint count, long near, long far, uint chunk,
                              const uint size) {
    float16 sum[ROWS][SLICE];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            sum[r][c] = accumulator[r * V_CHUNKS + chunk + c] * rescale[r];
            if (V_BIASED) sum[r][c] += biases[GROUP_OF_CHUNK(chunk + c) * ROWS + r];
        }
    for (uint t = 0; t < count; ++t) {
        const __global uchar* row = v + (long)t * stride;
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            PREFETCH_CHUNK(row + chunk * (V_ROW_BYTES / V_CHUNKS), c, V_ROW_BYTES, V_CHUNKS, near, far, V_PACKED);
            const float16 x = load_value_codes(row, chunk + c);
#pragma unroll
            for (uint r = 0; r < ROWS; ++r)
                sum[r][c] = fma((float16)(weights[(GROUP_OF_CHUNK(chunk + c) * ROWS + r) * TILE + t]), x, sum[r][c]);
        }
    }
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) accumulator[r * V_CHUNKS + chunk + c] = sum[r][c];
}

/* Adds dense values that are not all finite, where some rows see keys that others do not: what a row does not see
 * must not reach it, not even as 0 x NaN. lanes: [ROWS][TILE], as in sdpa_seen. */
static inline void add_seen_values(float16* accumulator, const float* rescale, const float* weights, const int* lanes,
                                   const __global uchar* v, long stride, uint count) {
    for (uint r = 0; r < ROWS; ++r)
        for (uint c = 0; c < V_CHUNKS; ++c) accumulator[r * V_CHUNKS + c] *= rescale[r];
    for (uint t = 0; t < count; ++t)
        for (uint c = 0; c < V_CHUNKS; ++c) {
            const int16 x = as_int16(load_value(v + (long)t * stride, c));
            for (uint r = 0; r < ROWS; ++r)
                accumulator[r * V_CHUNKS + c] = fma((float16)(weights[r * TILE + t]),
                                                    as_float16(x & lanes[r * TILE + t]), accumulator[r * V_CHUNKS + c]);
        }
}

/* Whether `count` rows of values hold neither infinity nor NaN. */
static inline int values_are_finite(const __global uchar* v, long stride, uint count) {
    int16 special = 0;
    for (uint t = 0; t < count; ++t)
        for (uint c = 0; c < V_CHUNKS; ++c) special |= lanes_not_finite(load_value(v + (long)t * stride, c));
    return !any_lane(special);
}

/* Asks for the values that are read, which lie apart, before the first one is needed. */
static inline void prefetch_values(key_set read, const __global uchar* v, long stride) {
    for (; read; read &= read - 1)
        for (uint c = 0; c < V_CHUNKS; ++c)
            PREFETCH_CHUNK(v + (long)trailing_zeros(read) * stride, c, V_ROW_BYTES, V_CHUNKS, 0, 0, 0);
}

/* The values of a tile that are read: those that a row sees and, under a threshold, that matter to one. */
static inline key_set choose_values(const sdpa_params* p, const __global uchar* v, long stride, const float16* weights,
                                    const sdpa_seen* seen, const float16* sum, uint* skipped, int* read_few) {
    key_set read = BITS_OF_TILE(end_of_set(seen->by_any));
    if (p->v_threshold != 0.0f) {
        read = find_read(p, read, weights, sum, seen, skipped);
        if (*read_few) prefetch_values(read, v, stride);
        *read_few = popcount(read) * 2 <= TILE;
    }
    /* Codes are finite, whoever sees them. What no row sees need not be read, where that leaves what all of them see.
     */
    return !V_PACKED && seen->by_any == seen->by_all ? read & seen->by_any : read;
}

/* Adds a run of `count` values that are all read. weights, lanes: those of the first one. */
static inline void add_run(float16* accumulator, const float* rescale, const float* weights, const float* biases,
                           const sdpa_seen* seen, const int* lanes, const __global uchar* v, long stride, uint count,
                           long near, long far) {
    if (!V_PACKED && seen->by_any != seen->by_all && !values_are_finite(v, stride, count)) {
        add_seen_values(accumulator, rescale, weights, lanes, v, stride, count);
        return;
    }
#pragma unroll SLICES_UNROLLED
    for (uint slice = 0; slice < V_CHUNKS / SLICE; ++slice)
        add_values(accumulator, rescale, weights, biases, v, stride, count, near, far, slice * SLICE, SLICE);
    if (V_CHUNKS % SLICE)
        add_values(accumulator, rescale, weights, biases, v, stride, count, near, far, V_CHUNKS / SLICE * SLICE,
                   V_CHUNKS % SLICE);
}

/* Adds weight x value in runs of values that are read. read_few: whether the last tile had few of them. */
static inline void sdpa_values(const sdpa_params* p, const sdpa_work_tile* work, const sdpa_tile* tile,
                               const sdpa_segment_view* segment, const float16* weights, const sdpa_seen* seen,
                               const float16* sum, float* rescale, const sdpa_result* result, int* read_few) {
    const long stride = segment->v_stride;
    const __global uchar* v = segment->v + (long)tile->key * stride;
    key_set read = choose_values(p, v, stride, weights, seen, sum, result->skipped, read_few);
    const long near = *read_few ? 0 : near_keys(work, tile) * stride;
    const long far = *read_few ? 0 : far_keys(work, tile) * stride;
    value_weights storage;
    const float* of_codes = weigh_codes(&storage, weights, seen, read, v, stride);
    do {
        const uint begin = read ? trailing_zeros(read) : 0;
        const key_set after = ~(read >> begin);
        const uint length = after ? trailing_zeros(after) : TILE;
        add_run(result->accumulator, rescale, of_codes + begin, storage.biases, seen, seen->lanes + begin,
                v + (long)begin * stride, stride, length, near, far);
        vstore16((float16)(1.0f), 0, rescale); /* what was done for the first run is done */
        if (V_BIASED)
            for (uint i = 0; i < V_GROUPS * ROWS; ++i) storage.biases[i] = 0.0f;
        read &= read + ((key_set)1 << begin); /* clears the run */
    } while (read);
}

#include "sdpa_attend_segment.h"
