/* How rows of one segment are loaded, and what its means add. Needs before it: sdpa_segment_names.h, sdpa_chunks.h,
 * sdpa_tensor_rows.h, sdpa_result.h, rotation.h and SEGMENT. */
#pragma winnow repeatable

#include "sdpa_segment_view.h"

#if (K_PACKED && K_TAIL) || (V_PACKED && V_HEAD_SIZE % 16)
#error "rows of packed formats are whole chunks of 16 elements"
#endif

/* Chunk c of a key; where chunks overlap, elements come twice. Lanes past a short row's end are 0. */
static inline float16 load_key_overlapping(const __global uchar* row, uint chunk) {
#if HEAD_SIZE < 16
    float lanes[16];
    for (uint lane = 0; lane < 16; ++lane) lanes[lane] = lane < HEAD_SIZE ? JOIN(load_, K_FORMAT)(row, lane) : 0.0f;
    return vload16(0, lanes);
#else
    return JOIN(load16_, K_FORMAT)(row, CHUNK_START(chunk, HEAD_SIZE), HEAD_SIZE);
#endif
}

/* Chunk c of a key with 0 in the lanes that overlap, so that a sum over the chunks is right. */
static inline float16 load_key(const __global uchar* row, uint chunk) {
#if HEAD_SIZE > 16 && K_TAIL
    const float16 x = load_key_overlapping(row, chunk);
    return chunk < K_CHUNKS - 1 ? x : select((float16)(0.0f), x, LANE_INDEX >= 16 - K_TAIL);
#else
    return load_key_overlapping(row, chunk);
#endif
}

/* Chunks of a key as load_key_overlapping, and of a value, with the factor that a row-scaled format leaves out. */
static inline float16 load_whole_key(const __global uchar* row, uint chunk) {
#if K_ROW_SCALED
    return load_key_overlapping(row, chunk) * JOIN(row_scale_, K_FORMAT)(row, HEAD_SIZE);
#else
    return load_key_overlapping(row, chunk);
#endif
}

static inline float16 load_value(const __global uchar* row, uint chunk) {
#if V_HEAD_SIZE < 16
    float lanes[16];
    for (uint lane = 0; lane < 16; ++lane) lanes[lane] = lane < V_HEAD_SIZE ? JOIN(load_, V_FORMAT)(row, lane) : 0.0f;
    return vload16(0, lanes);
#else
    return JOIN(load16_, V_FORMAT)(row, CHUNK_START(chunk, V_HEAD_SIZE), V_HEAD_SIZE);
#endif
}

static inline float16 load_whole_value(const __global uchar* row, uint chunk) {
#if V_ROW_SCALED
    return load_value(row, chunk) * JOIN(row_scale_, V_FORMAT)(row, V_HEAD_SIZE);
#else
    return load_value(row, chunk);
#endif
}

/* A row of Q as K's format wants to meet it. q: [K_CHUNKS], lanes that overlap are 0. */
static inline void load_query(const __global uchar* row, uint type, float16* q) {
    for (uint chunk = 0; chunk < K_CHUNKS; ++chunk) q[chunk] = load_query_chunk(row, type, chunk);
#if K_ROTATED
    rotate(q, HEAD_SIZE);
#endif
}

/* What the mean that the keys lack adds to a row's logits. scores: [ROWS]. */
static inline void mean_scores(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                               float* scores) {
#if SLOTS
    for (uint r = 0; r < ROWS; ++r) scores[r] = 0.0f;
    const sdpa_segment* segment = &p->segment[SEGMENT];
    if (!segment->has_k_mean) return;
    const __global uchar* mean = head_slice(memory->segment[SEGMENT].k_mean, &segment->k_mean, p, work);
    for (uint r = 0; r < work->rows; ++r) {
        const __global uchar* row = q_row(p, memory, work, r);
        float16 sum = (float16)(0.0f);
        for (uint chunk = 0; chunk < K_CHUNKS; ++chunk)
            sum = fma(load_query_chunk(row, p->q_type, chunk), load_mean(mean, chunk, HEAD_SIZE), sum);
        scores[r] = sum_of_lanes(sum) * p->scale;
    }
#endif
}

/* s: [ROWS][TILE_VECTORS]. */
static inline void add_mean_scores(const sdpa_work_tile* work, const float* scores, float16* s) {
#if SLOTS
    for (uint r = 0; r < ROWS_TAKEN(work); ++r)
        for (uint i = 0; i < TILE_VECTORS; ++i) s[r * TILE_VECTORS + i] += scores[r];
#endif
}

/* Makes of the sums of weight x stored value those of weight x value. */
static inline void finish_segment(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                  const sdpa_result* result) {
#if V_ROTATED
    for (uint r = 0; r < work->rows; ++r) rotate_back(result->accumulator + r * V_CHUNKS, V_HEAD_SIZE);
#endif
#if SLOTS
    const sdpa_segment* segment = &p->segment[SEGMENT];
    if (!segment->has_v_mean) return;
    const __global uchar* mean = head_slice(memory->segment[SEGMENT].v_mean, &segment->v_mean, p, work);
    for (uint chunk = 0; chunk < V_CHUNKS; ++chunk) {
        const float16 x = load_mean(mean, chunk, V_HEAD_SIZE);
        for (uint r = 0; r < work->rows; ++r) {
            if (result->sum[r] == 0.0f) continue; /* the row sees none of the segment, and the mean may be no number */
            result->accumulator[r * V_CHUNKS + chunk] =
                fma((float16)(result->sum[r]), x, result->accumulator[r * V_CHUNKS + chunk]);
        }
    }
#endif
}
