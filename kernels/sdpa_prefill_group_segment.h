/* What a group of sdpa_prefill_workgroup.cl does with the keys of one segment that it has. Needs before it:
 * sdpa_prefill_group_tile.h, sdpa_segment_names.h and SEGMENT. */
#pragma winnow repeatable

#include "sdpa_segment_view.h"
#include "sdpa_group_mean.h"

#if (K_PACKED && K_TAIL) || (V_PACKED && V_HEAD_SIZE % 16)
#error "rows of packed formats are whole chunks of 16 elements"
#endif

ALWAYS_INLINE void prefill_queries(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    for (uint i = LANE; i < ROWS * Q_PADDED; i += GROUP_SIZE) {
        const uint r = i / Q_PADDED, e = i % Q_PADDED;
        g->accumulator[r * Q_STRIDE + e] = e < HEAD_SIZE ? load_any(q_row(p, memory, &g->work, r), p->q_type, e) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if K_ROTATED
    local_rotate(g->accumulator, ROWS, HEAD_SIZE, Q_STRIDE);
#endif
}

/* ---- Chunks of 16 elements, as they are on their way: what is packed is decoded as it is loaded ---- */

#if K_PACKED
typedef float16 prefill_k_chunk;
#else
typedef struct prefill_k_chunk {
    JOIN(piece_, K_FORMAT) low, high;
} prefill_k_chunk;
#endif
#if V_PACKED
typedef float16 prefill_v_chunk;
#else
typedef struct prefill_v_chunk {
    JOIN(piece_, V_FORMAT) low, high;
} prefill_v_chunk;
#endif

/* A chunk of a key; zeros where the tile has no such key, or a key no such chunk. */
ALWAYS_INLINE prefill_k_chunk prefill_key(const sdpa_segment_view* view, uint key, uint t, uint count, uint chunk,
                                          const __local float* lookup_tables) {
    const __global uchar* row = view->k + (key + t) * view->k_stride;
    const int is_there = t < count && chunk < K_CHUNKS;
    prefill_k_chunk x;
#if K_PACKED
    x = (float16)(0.0f);
    if (is_there) {
        const uint group = chunk * 16 / K_GROUP;
        x = JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE LOOKUP_TABLE);
        const float factor = load_half16(row + JOIN(FORMAT_FACTOR_AT_, K_FORMAT)(HEAD_SIZE, group)).s0;
#if K_BIASED
        const float bias = load_half16(row + JOIN(FORMAT_BIAS_AT_, K_FORMAT)(HEAD_SIZE, group)).s0;
        x = fma(x, (float16)(factor), (float16)(bias));
#else
        x *= factor;
#endif
    }
#else
    x.low = x.high = 0;
    if (is_there && are_aligned(view->k, view->k_stride)) {
        x.low = JOIN(load_aligned_piece_, K_FORMAT)(row, chunk * 16, HEAD_SIZE);
        x.high = JOIN(load_aligned_piece_, K_FORMAT)(row, chunk * 16 + 8, HEAD_SIZE);
    } else if (is_there) {
        x.low = JOIN(load_piece_, K_FORMAT)(row, chunk * 16, HEAD_SIZE);
        x.high = JOIN(load_piece_, K_FORMAT)(row, chunk * 16 + 8, HEAD_SIZE);
    }
#endif
    return x;
}

ALWAYS_INLINE prefill_v_chunk prefill_value(const sdpa_segment_view* view, uint key, uint t, uint count, uint chunk,
                                            const __local float* lookup_tables) {
    const __global uchar* row = view->v + (key + t) * view->v_stride;
    const int is_there = t < count && chunk < V_CHUNKS;
    prefill_v_chunk x;
#if V_PACKED
    x = (float16)(0.0f);
    if (is_there) {
        const uint group = chunk * 16 / V_GROUP;
        x = JOIN(codes16_, V_FORMAT)(row, chunk * 16, V_HEAD_SIZE LOOKUP_TABLE);
        const float factor = load_half16(row + JOIN(FORMAT_FACTOR_AT_, V_FORMAT)(V_HEAD_SIZE, group)).s0;
#if V_BIASED
        const float bias = load_half16(row + JOIN(FORMAT_BIAS_AT_, V_FORMAT)(V_HEAD_SIZE, group)).s0;
        x = fma(x, (float16)(factor), (float16)(bias));
#else
        x *= factor;
#endif
    }
#else
    x.low = x.high = 0;
    if (is_there && are_aligned(view->v, view->v_stride)) {
        x.low = JOIN(load_aligned_piece_, V_FORMAT)(row, chunk * 16, V_HEAD_SIZE);
        x.high = JOIN(load_aligned_piece_, V_FORMAT)(row, chunk * 16 + 8, V_HEAD_SIZE);
    } else if (is_there) {
        x.low = JOIN(load_piece_, V_FORMAT)(row, chunk * 16, V_HEAD_SIZE);
        x.high = JOIN(load_piece_, V_FORMAT)(row, chunk * 16 + 8, V_HEAD_SIZE);
    }
#endif
    return x;
}

#undef K_CHUNK_FLOATS
#undef V_CHUNK_FLOATS
#if K_PACKED
#define K_CHUNK_FLOATS(x) (x)
#else
#define K_CHUNK_FLOATS(x)                                                                                              \
    ((float16)(JOIN(floats_of_piece_, K_FORMAT)((x).low), JOIN(floats_of_piece_, K_FORMAT)((x).high)))
#endif
#if V_PACKED
#define V_CHUNK_FLOATS(x) (x)
#else
#define V_CHUNK_FLOATS(x)                                                                                              \
    ((float16)(JOIN(floats_of_piece_, V_FORMAT)((x).low), JOIN(floats_of_piece_, V_FORMAT)((x).high)))
#endif

/* ---- Logits ---- */

/* The inner products of a lane's rows and keys. sums: [LANE_ROWS][LANE_KEYS]. It begins with a barrier. */
ALWAYS_INLINE void prefill_logits(__local group_state* g, const sdpa_segment_view* view, uint key, uint count,
                                  float* sums) {
    const uint t = LANE / 2, chunk = LANE % 2;
#pragma unroll
    for (uint i = 0; i < LANE_ROWS * LANE_KEYS; ++i) sums[i] = 0.0f;
    prefill_k_chunk next = prefill_key(view, key, t, count, chunk, g->lookup_tables);
    for (uint first = 0; first < Q_PADDED; first += K_STAGE) {
        const float16 x = K_CHUNK_FLOATS(next);
        __local float4* to = (__local float4*)(g->stage + t * K_STAGE_STRIDE + chunk * 16);
        barrier(CLK_LOCAL_MEM_FENCE); /* all have read the stage before */
        to[0] = x.lo.lo;
        to[1] = x.lo.hi;
        to[2] = x.hi.lo;
        to[3] = x.hi.hi;
        barrier(CLK_LOCAL_MEM_FENCE);
        if (first + K_STAGE < Q_PADDED)
            next = prefill_key(view, key, t, count, (first + K_STAGE) / 16 + chunk, g->lookup_tables);
        const __local float4* q = (const __local float4*)(g->accumulator + GRID_ROW * Q_STRIDE + first);
        const __local float4* k = (const __local float4*)(g->stage + GRID_COLUMN * K_STAGE_STRIDE);
#pragma unroll 1
        for (uint d = 0; d < K_STAGE / 4; ++d) {
            float4 keys[LANE_KEYS];
#pragma unroll
            for (uint j = 0; j < LANE_KEYS; ++j) keys[j] = k[j * (16 * K_STAGE_STRIDE / 4) + d];
#pragma unroll
            for (uint i = 0; i < LANE_ROWS; ++i) {
                const float4 row = q[i * (8 * Q_STRIDE / 4) + d];
#pragma unroll
                for (uint j = 0; j < LANE_KEYS; ++j) {
                    float sum = fma(row.x, keys[j].x, sums[i * LANE_KEYS + j]);
                    sum = fma(row.y, keys[j].y, sum);
                    sum = fma(row.z, keys[j].z, sum);
                    sums[i * LANE_KEYS + j] = fma(row.w, keys[j].w, sum);
                }
            }
        }
    }
}

/* ---- Values ---- */

/* Adds the values of a stage to a lane's `runs` runs of its rows. accumulator: [runs][LANE_ROWS]. weights: of GRID_ROW
 * and the stage's first key. With is_special what a row does not see is left out, because it may be no number. */
ALWAYS_INLINE void prefill_add(const __local group_state* g, const __local float* weights, const uint runs,
                               const int is_special, float4* accumulator) {
    const __local float4* v = (const __local float4*)g->stage + GRID_COLUMN;
#pragma unroll 1
    for (uint t = 0; t < V_STAGE_KEYS(runs); t += 4) {
        float4 of_rows[LANE_ROWS];
#pragma unroll
        for (uint i = 0; i < LANE_ROWS; ++i) of_rows[i] = *(const __local float4*)(weights + i * 8 * S_STRIDE + t);
#pragma unroll
        for (uint j = 0; j < 4; ++j) {
#pragma unroll
            for (uint run = 0; run < runs; ++run) {
                const float4 x = v[(t + j) * (V_STAGE_STRIDE(runs) / 4) + run * 16];
#pragma unroll
                for (uint i = 0; i < LANE_ROWS; ++i) {
                    const float weight = j == 0   ? of_rows[i].x
                                         : j == 1 ? of_rows[i].y
                                         : j == 2 ? of_rows[i].z
                                                  : of_rows[i].w;
                    if (is_special && is_hidden_weight(weight)) continue;
                    float4* sum = accumulator + run * LANE_ROWS + i;
                    *sum = fma((float4)(weight), x, *sum);
                }
            }
        }
    }
}

/* The values of a tile, of `runs` * 64 elements from chunk `first` on. After the weights, and before a barrier. */
ALWAYS_INLINE void prefill_values(__local group_state* g, const sdpa_segment_view* view, uint key, uint count,
                                  const uint first, const uint runs, float4* accumulator) {
    const uint t = LANE / V_CHUNKS_OF(runs), chunk = LANE % V_CHUNKS_OF(runs);
    prefill_v_chunk next = prefill_value(view, key, t, count, first + chunk, g->lookup_tables);
    for (uint of_stage = 0; of_stage < count; of_stage += V_STAGE_KEYS(runs)) {
        const float16 x = V_CHUNK_FLOATS(next);
        __local float4* to = (__local float4*)(g->stage + t * V_STAGE_STRIDE(runs)) + chunk;
        barrier(CLK_LOCAL_MEM_FENCE); /* all have read the stage before */
        to[0] = x.lo.lo;
        to[V_CHUNKS_OF(runs)] = x.lo.hi;
        to[2 * V_CHUNKS_OF(runs)] = x.hi.lo;
        to[3 * V_CHUNKS_OF(runs)] = x.hi.hi;
        if (any_lane(lanes_not_finite(x))) g->is_special = 1;
        barrier(CLK_LOCAL_MEM_FENCE);
        const uint then = of_stage + V_STAGE_KEYS(runs);
        if (then < count) next = prefill_value(view, key, then + t, count, first + chunk, g->lookup_tables);
        const __local float* weights = g->parts[0] + GRID_ROW * S_STRIDE + of_stage;
        if (g->is_special)
            prefill_add(g, weights, runs, 1, accumulator);
        else
            prefill_add(g, weights, runs, 0, accumulator);
    }
}

/* Each pass by itself, because a compiler may unroll no loop with a barrier, and then an accumulator would be in no
 * registers. */
#undef V_PASS
#define V_PASS(pass)                                                                                                   \
    prefill_values(g, view, key, count, (pass)*8, RUNS_OF_PASS(pass), accumulator + (pass)*2 * LANE_ROWS);

ALWAYS_INLINE void prefill_all_values(__local group_state* g, const sdpa_segment_view* view, uint key, uint count,
                                      float4* accumulator) {
#pragma unroll
    for (uint i = 0; i < LANE_ROWS * V_RUNS; ++i) accumulator[i] *= g->rescale[GRID_ROW + i % LANE_ROWS * 8];
    V_PASS(0)
#if V_PASSES > 1
    V_PASS(1)
#endif
#if V_PASSES > 2
    V_PASS(2)
#endif
#if V_PASSES > 3
    V_PASS(3)
#endif
#if V_PASSES > 4
    V_PASS(4)
#endif
}

/* ---- A segment ---- */

#if SLOTS
/* Adds the mean that the values of the segment lack, when there are no more keys. */
ALWAYS_INLINE void prefill_add_mean(const sdpa_params* p, const sdpa_memory* memory, const __local group_state* g,
                                    float4* accumulator) {
    const sdpa_segment* segment = &p->segment[SEGMENT];
    if (!segment->has_v_mean) return;
    const __global uchar* mean = head_slice(memory->segment[SEGMENT].v_mean, &segment->v_mean, p, &g->work);
#pragma unroll
    for (uint i = 0; i < V_RUNS; ++i) {
        const uint e = ELEMENT_OF_RUN(i);
        float x[4];
#pragma unroll
        for (uint j = 0; j < 4; ++j) x[j] = e + j < V_HEAD_SIZE ? load_f32(mean, e + j) : 0.0f;
#pragma unroll
        for (uint r = 0; r < LANE_ROWS; ++r) {
            const float sum = g->segment_weights[SEGMENT][GRID_ROW + r * 8];
            float4* to = accumulator + i * LANE_ROWS + r;
            /* A row may see none of the segment, and the mean may be no number. */
            if (sum != 0.0f) *to = fma((float4)(sum), (float4)(x[0], x[1], x[2], x[3]), *to);
        }
    }
}
#endif

ALWAYS_INLINE void attend_segment(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                  prefill_lane* of_lane, float4* accumulator) {
    const sdpa_segment_view view = find_segment(p, memory, &g->work);
    const uint key_begin = g->work.key_begin, key_end = g->work.key_end;
#if LENGTHS
    store_unseen(p, memory, g, key_end, g->work.split_end - key_end); /* past the batch entry's length */
#endif
    prefill_queries(p, memory, g);
    group_mean_scores(p, memory, g);
    for (uint key = key_begin; key < key_end; key += TILE) {
        const uint count = min((uint)TILE, key_end - key);
        const int kind = prefill_classify(p, memory, g, view.slots, key, count, of_lane);
        if (kind == TILE_SKIPPED && !scores_want_unseen(p)) {
            store_unseen(p, memory, g, key, count);
            continue;
        }
        float sums[LANE_ROWS * LANE_KEYS];
        prefill_logits(g, &view, key, count, sums);
        prefill_transform(p, memory, g, key, count, kind == TILE_CLEAR, sums);
        if (LANE == 0) g->is_special = 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        prefill_softmax(g, of_lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        prefill_all_values(g, &view, key, count, accumulator);
    }
    const float sum = sum_of_row(g, of_lane->sum);
    of_lane->sum = 0.0f;
    if (LANE_OF_ROW == 0) {
        g->sum[LANE_ROW] += sum;
        g->segment_weights[SEGMENT][LANE_ROW] = sum;
    }
}
