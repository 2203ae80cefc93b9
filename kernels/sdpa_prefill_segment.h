/* sdpa_prefill's code for one segment: its stages "logits" and "values", between which sdpa_attend_segment.h has the
 * others. Needs before it: the stages, the micro-kernels of sdpa_prefill.cl and SEGMENT. */
#pragma winnow repeatable

#include "sdpa_segment_rows.h"

/* ---- Logits ---- */

/* Rows of Q as the keys want to meet them. */
typedef struct segment_queries {
    float elements[ROWS * HEAD_SIZE]; /* [ROWS][HEAD_SIZE] */
} segment_queries;

static inline void load_queries(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                segment_queries* q) {
    for (uint r = 0; r < ROWS_TAKEN(work); ++r) {
        const __global uchar* row = q_row(p, memory, work, r);
        float* to = q->elements + r * HEAD_SIZE;
        if (K_ROTATED) {
            float16 rotated[K_CHUNKS];
            load_query(row, p->q_type, rotated);
            for (uint c = 0; c < K_CHUNKS; ++c) vstore16(rotated[c], c, to);
        } else {
            for (uint d = 0; d < HEAD_SIZE; ++d) to[d] = load_any(row, p->q_type, d);
        }
    }
}

/* Keys from `key` as columns: kt [HEAD_SIZE, at least 16][TILE_VECTORS]. Keys past `last` repeat it. */
static inline void load_keys_transposed(float16* kt, const __global uchar* k, long stride, uint key, uint last) {
    for (uint i = 0; i < TILE_VECTORS; ++i)
        for (uint chunk = 0; chunk < K_CHUNKS; ++chunk) {
            float16 x[16];
#pragma unroll
            for (uint t = 0; t < 16; ++t) x[t] = load_whole_key(k + (long)min(key + i * 16 + t, last) * stride, chunk);
            transpose16(x);
#pragma unroll
            for (uint d = 0; d < 16; ++d) kt[(CHUNK_START(chunk, HEAD_SIZE) + d) * TILE_VECTORS + i] = x[d];
        }
}

static inline void sdpa_logits(const sdpa_params* p, const sdpa_work_tile* work, const sdpa_tile* tile,
                               const sdpa_segment_view* segment, const segment_queries* q, float16* s) {
    float16 kt[(HEAD_SIZE < 16 ? 16 : HEAD_SIZE) * TILE_VECTORS];
    load_keys_transposed(kt, segment->k, segment->k_stride, tile->key, work->key_end - 1);
    for (uint r = 0; r < ROWS_TAKEN(work); r += 4)
        dot_4_rows(q->elements + r * HEAD_SIZE, kt, p->scale, s + r * TILE_VECTORS);
}

/* ---- Values ---- */

/* `count` values as floats: to [TILE][V_CHUNKS]. Returns whether they hold neither infinity nor NaN. */
static inline int load_values(float16* to, const __global uchar* v, long stride, uint count) {
    int16 special = 0;
    for (uint t = 0; t < count; ++t)
        for (uint c = 0; c < V_CHUNKS; ++c) {
            const float16 x = load_whole_value(v + (long)t * stride, c);
            to[t * V_CHUNKS + c] = x;
            special |= lanes_not_finite(x);
        }
    return !any_lane(special);
}

/* Adds weight x value; every value up to the last one that a row sees is read. */
static inline void sdpa_values(const sdpa_params* p, const sdpa_work_tile* work, const sdpa_tile* tile,
                               const sdpa_segment_view* segment, const float16* weights, const sdpa_seen* seen,
                               const float16* sum, const float* rescale, const sdpa_result* result, int* read_few) {
    float16 values[TILE * V_CHUNKS];
    const uint used = end_of_set(seen->by_any);
    const int are_finite =
        load_values(values, segment->v + (long)tile->key * segment->v_stride, segment->v_stride, used);
    if (are_finite || seen->by_all == BITS_OF_TILE(tile->count))
        for (uint r = 0; r < ROWS_TAKEN(work); r += 4)
            add_values_4_rows(result->accumulator + r * V_CHUNKS, rescale + r,
                              (const float*)(weights + r * TILE_VECTORS), values, used);
    else
        for (uint r = 0; r < ROWS_TAKEN(work); ++r)
            add_seen_values_1_row(result->accumulator + r * V_CHUNKS, rescale[r],
                                  (const float*)(weights + r * TILE_VECTORS), seen->lanes + r * TILE, values, used);
}

#include "sdpa_attend_segment.h"
