/* What a group of many work-items does with the keys of one segment that it has. Needs before it: sdpa_group_state.h,
 * sdpa_group_tile.h, sdpa_segment_names.h and SEGMENT. */
#pragma winnow repeatable

#include "sdpa_segment_view.h"

#if (K_PACKED && K_TAIL) || (V_PACKED && V_HEAD_SIZE % 16)
#error "rows of packed formats are whole chunks of 16 elements"
#endif

/* ---- Q and means ---- */

ALWAYS_INLINE void group_queries(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    for (uint i = LANE; i < ROWS * Q_FLOATS; i += GROUP_SIZE) {
        const uint r = i / Q_FLOATS, e = i % Q_FLOATS;
        g->of_segment.q[i] = e < HEAD_SIZE ? load_any(q_row(p, memory, &g->work, r), p->q_type, e) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if K_ROTATED
    local_rotate(g->of_segment.q, ROWS, HEAD_SIZE);
#endif
}

/* What the mean that the keys lack adds to a row's logits. */
ALWAYS_INLINE void group_mean_scores(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    float sum = 0.0f;
#if SLOTS
    const sdpa_segment* segment = &p->segment[SEGMENT];
    if (segment->has_k_mean) {
        if (LANE_ROW < ROWS) {
            const __global uchar* mean = head_slice(memory->segment[SEGMENT].k_mean, &segment->k_mean, p, &g->work);
            const __global uchar* row = q_row(p, memory, &g->work, LANE_ROW);
            for (uint e = LANE_OF_ROW; e < HEAD_SIZE; e += ROW_LANES)
                sum = fma(load_any(row, p->q_type, e), load_f32(mean, e), sum);
        }
        sum = sum_of_row(g, sum) * p->scale;
    }
#endif
    if (LANE_ROW < ROWS && LANE_OF_ROW == 0) g->from_mean[LANE_ROW] = sum;
}

/* ---- Logits ---- */

#define K_BATCH BATCH_OF(K_PACKED, K_ROW_BYTES, HEAD_SIZE)
#define KEY_LANES LESSER(GROUP_SIZE / LESSER(K_BATCH, GROUP_SIZE), K_CHUNKS)
#define V_BATCH BATCH_OF(V_PACKED, V_ROW_BYTES, V_HEAD_SIZE)
#define V_ABREAST (GROUP_SIZE / V_CHUNKS)
#define K_SHARES_FACTOR (K_PACKED && !K_BIASED && K_GROUP == HEAD_SIZE)

/* A chunk of a key as numbers; where all of a key share one factor the codes, which lack it. */
static inline float16 group_key(const __local uchar* row, uint chunk, const __local float* lookup_tables) {
#if !K_PACKED
    return JOIN(local16_, K_FORMAT)(row, chunk);
#else
    const float16 codes = JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE LOOKUP_TABLE);
#if K_SHARES_FACTOR
    return codes;
#else
    const float factor = local_half(row + JOIN(FORMAT_FACTOR_AT_, K_FORMAT)(HEAD_SIZE, chunk * 16 / K_GROUP));
#if K_BIASED
    const float bias = local_half(row + JOIN(FORMAT_BIAS_AT_, K_FORMAT)(HEAD_SIZE, chunk * 16 / K_GROUP));
    return fma(codes, (float16)(factor), (float16)(bias));
#else
    return codes * factor;
#endif
#endif
#endif
}

/* A chunk of a value as numbers; of a format without biases the codes, and *factor is what they lack. */
static inline float16 group_value(const __local uchar* row, uint chunk, const __local float* lookup_tables,
                                  float* factor) {
    *factor = 1.0f;
#if !V_PACKED
    return JOIN(local16_, V_FORMAT)(row, chunk);
#else
    const float16 codes = JOIN(codes16_, V_FORMAT)(row, chunk * 16, V_HEAD_SIZE LOOKUP_TABLE);
    const float of_codes = local_half(row + JOIN(FORMAT_FACTOR_AT_, V_FORMAT)(V_HEAD_SIZE, chunk * 16 / V_GROUP));
#if V_BIASED
    const float bias = local_half(row + JOIN(FORMAT_BIAS_AT_, V_FORMAT)(V_HEAD_SIZE, chunk * 16 / V_GROUP));
    return fma(codes, (float16)(of_codes), (float16)(bias));
#else
    *factor = of_codes;
    return codes;
#endif
#endif
}

/* This lane's parts of the inner products of all rows with one key of a batch: lanes side by side have keys side by
 * side, and read the same chunk of Q. */
ALWAYS_INLINE void group_dots(__local group_state* g, const local_rows* rows, const __local int* seen, int takes_all,
                              uint count) {
    const uint t = LANE % K_BATCH, first = LANE / K_BATCH;
    if (t >= count || first >= KEY_LANES || (!takes_all && !seen[t])) return;
    const __local uchar* row = local_row(rows, t);
    float4 sums[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r) sums[r] = (float4)(0.0f);
#pragma unroll 1
    for (uint chunk = first; chunk < K_CHUNKS; chunk += KEY_LANES) {
        const float16 x = group_key(row, chunk, g->lookup_tables);
        const __local float4* q = (const __local float4*)(g->of_segment.q + chunk * 16);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            const __local float4* of_row = q + r * (Q_FLOATS / 4);
            sums[r] = fma(x.lo.lo, of_row[0], sums[r]);
            sums[r] = fma(x.lo.hi, of_row[1], sums[r]);
            sums[r] = fma(x.hi.lo, of_row[2], sums[r]);
            sums[r] = fma(x.hi.hi, of_row[3], sums[r]);
        }
    }
#if K_SHARES_FACTOR
    const float factor = local_half(row + JOIN(FORMAT_FACTOR_AT_, K_FORMAT)(HEAD_SIZE, 0));
#else
    const float factor = 1.0f;
#endif
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
        g->parts[(r * KEY_LANES + first) * K_BATCH + t] = ((sums[r].x + sums[r].y) + (sums[r].z + sums[r].w)) * factor;
}

ALWAYS_INLINE void group_logits(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                const sdpa_segment_view* view, uint key, uint tile_count) {
    const int takes_all = scores_want_unseen(p), is_plain = !has_transform(p);
    for (uint batch = 0; batch < tile_count; batch += K_BATCH) {
        const uint count = min(tile_count - batch, (uint)K_BATCH);
        const local_rows rows = stage_rows(g->pool, view->k + (long)(key + batch) * view->k_stride, view->k_stride,
                                           count, K_ROW_BYTES, HEAD_SIZE, K_PACKED);
        barrier(CLK_LOCAL_MEM_FENCE);
        group_dots(g, &rows, g->seen + batch, takes_all, count);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = LANE; i < ROWS * K_BATCH; i += GROUP_SIZE) {
            const uint r = i / K_BATCH, t = i % K_BATCH;
            if (t >= count) continue;
            float dot = 0.0f;
            if (takes_all || g->seen[batch + t])
                for (uint j = 0; j < KEY_LANES; ++j) dot += g->parts[(r * KEY_LANES + j) * K_BATCH + t];
            const float logit = fma(dot, p->scale, g->from_mean[r]);
            if (is_plain)
                group_plain(g, r, batch + t, logit);
            else
                group_transform(p, memory, g, r, key, batch + t, logit);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* ---- Values ---- */

/* Adds this lane's chunk of the values of a batch to its sums of each row. Where the rows do not see the same keys,
 * what a row does not see is left out, because it may be no number. */
ALWAYS_INLINE void group_add_values(const __local group_state* g, const local_rows* rows, uint batch, uint count,
                                    const int is_partial, float16* accumulator) {
    const uint chunk = LANE % V_CHUNKS;
    if (LANE / V_CHUNKS >= V_ABREAST) return;
    for (uint t = LANE / V_CHUNKS; t < count; t += V_ABREAST) {
        const uint at = batch + t;
        if (g->seen[at] != 1) continue;
        float factor;
        const float16 x = group_value(local_row(rows, t), chunk, g->lookup_tables, &factor);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            const float weight = g->s[r * TILE + at];
            if (is_partial && is_hidden_weight(weight)) continue;
            accumulator[r] = fma((float16)(weight * factor), x, accumulator[r]);
        }
    }
}

ALWAYS_INLINE void group_values(__local group_state* g, const sdpa_segment_view* view, uint key, uint tile_count,
                                float16* accumulator) {
#pragma unroll
    for (uint r = 0; r < ROWS; ++r) accumulator[r] *= g->rescale[r];
    const int is_partial = g->is_partial;
    for (uint batch = 0; batch < tile_count; batch += V_BATCH) {
        const uint count = min(tile_count - batch, (uint)V_BATCH);
        const local_rows rows = stage_rows(g->pool, view->v + (long)(key + batch) * view->v_stride, view->v_stride,
                                           count, V_ROW_BYTES, V_HEAD_SIZE, V_PACKED);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (is_partial)
            group_add_values(g, &rows, batch, count, 1, accumulator);
        else
            group_add_values(g, &rows, batch, count, 0, accumulator);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
}

/* ---- A segment ---- */

/* What the lanes have of each row is added up in of_segment.part_of, and becomes that of the values as they are. */
ALWAYS_INLINE void group_finish(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                const float16* accumulator) {
    __local float* part_of = g->of_segment.part_of;
    __local float* by_lane = (__local float*)g->pool; /* [16][GROUP_SIZE] */
#pragma unroll
    for (uint r = 0; r < ROWS; ++r) {
        float lanes[16];
        vstore16(accumulator[r], 0, lanes);
#pragma unroll
        for (uint e = 0; e < 16; ++e) by_lane[e * GROUP_SIZE + LANE] = lanes[e];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = LANE; i < V_FLOATS; i += GROUP_SIZE) {
            const uint chunk = i % V_CHUNKS, e = i / V_CHUNKS;
            float sum = 0.0f;
            for (uint j = 0; j < V_ABREAST; ++j) sum += by_lane[e * GROUP_SIZE + j * V_CHUNKS + chunk];
            part_of[r * V_FLOATS + chunk * 16 + e] = sum;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
#if V_ROTATED
    local_rotate_back(part_of, ROWS, V_HEAD_SIZE);
#endif
#if SLOTS
    const sdpa_segment* segment = &p->segment[SEGMENT];
    if (!segment->has_v_mean) return;
    const __global uchar* mean = head_slice(memory->segment[SEGMENT].v_mean, &segment->v_mean, p, &g->work);
    for (uint i = LANE; i < ROWS * V_HEAD_SIZE; i += GROUP_SIZE) {
        const uint r = i / V_HEAD_SIZE, e = i % V_HEAD_SIZE;
        const float sum = g->segment_sum[r];
        /* A row may see none of the segment, and the mean may be no number. */
        if (sum != 0.0f) part_of[r * V_FLOATS + e] = fma(sum, load_f32(mean, e), part_of[r * V_FLOATS + e]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
}

ALWAYS_INLINE void attend_segment(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    const sdpa_segment_view view = find_segment(p, memory, &g->work);
    const uint key_begin = g->work.key_begin, key_end = g->work.key_end;
    group_queries(p, memory, g);
    group_mean_scores(p, memory, g);
    float16 accumulator[ROWS];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r) accumulator[r] = (float16)(0.0f);
    lane_rows of_lane = {NO_MAXIMUM, 0.0f, 0};
    for (uint key = key_begin; key < key_end; key += TILE) {
        const uint count = min((uint)TILE, key_end - key);
        group_classify(p, memory, g, view.slots, key, count);
        const int is_any = g->is_any;
        if (is_any || scores_want_unseen(p))
            group_logits(p, memory, g, &view, key, count);
        else
            store_unseen(p, memory, g, key, count);
        group_softmax(p, memory, g, SEGMENT, key, count, &of_lane);
        if (is_any) group_values(g, &view, key, count, accumulator);
    }
    const float sum = sum_of_row(g, of_lane.sum);
    const uint skipped = count_of_row(g, of_lane.skipped);
    if (LANE_ROW < ROWS && LANE_OF_ROW == 0) {
        g->segment_maximum[LANE_ROW] = of_lane.maximum;
        g->segment_sum[LANE_ROW] = sum;
        g->skipped[LANE_ROW] += skipped;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    group_finish(p, memory, g, accumulator);
}
