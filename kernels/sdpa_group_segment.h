/* What a group of many work-items does with the keys of one segment that it has. Needs before it: sdpa_group_state.h,
 * sdpa_group_tile.h, sdpa_segment_names.h and SEGMENT. */
#pragma winnow repeatable

#include "sdpa_segment_view.h"
#include "sdpa_group_mean.h"

#if (K_PACKED && K_TAIL) || (V_PACKED && V_HEAD_SIZE % 16)
#error "rows of packed formats are whole chunks of 16 elements"
#endif

/* ---- Q ---- */

ALWAYS_INLINE void group_queries(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    for (uint i = LANE; i < ROWS * Q_FLOATS; i += GROUP_SIZE) {
        const uint r = i / Q_FLOATS, e = i % Q_FLOATS;
        g->of_segment.q[i] = e < HEAD_SIZE ? load_any(q_row(p, memory, &g->work, r), p->q_type, e) : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
#if K_ROTATED
    local_rotate(g->of_segment.q, ROWS, HEAD_SIZE, HEAD_SIZE);
#endif
}

/* ---- Pieces ---- */

/* A lane takes a piece of a row at a time, 8 elements of a dense one and a chunk of 16 of a packed one, and has in
 * registers what it needs for it of rows of Q, or sums up for rows of the output. Of dense rows the pieces of several
 * keys are on their way at once, while the lanes wait for each other, too. */
#define K_EIGHTS (K_PACKED ? 2 : 1)
#define K_PIECES (Q_FLOATS / 8 / K_EIGHTS)
#define V_EIGHTS (V_PACKED ? 2 : 1)
#define V_PIECES (V_FLOATS / 8 / V_EIGHTS)
#define K_SHARES_FACTOR (K_PACKED && !K_BIASED && K_GROUP == HEAD_SIZE)

/* Whether products of small matrices take the segment (sdpa_tensor_segment.h). What else there is for it then takes few
 * keys and rows at once, so that it does not ask for more registers. */
#undef HAS_TENSOR_CORES
#if TENSOR_CORES && JOIN(FORMAT_TENSOR_, K_FORMAT) && JOIN(FORMAT_TENSOR_, V_FORMAT) && HEAD_SIZE % 32 == 0 &&         \
    HEAD_SIZE <= 128 && V_HEAD_SIZE % 64 == 0 && V_HEAD_SIZE <= 128
#define HAS_TENSOR_CORES 1
#else
#define HAS_TENSOR_CORES 0
#endif

/* A lane's share of the output: a piece of VALUE_ROWS rows. */
#define VALUE_SETS ((V_PACKED || HAS_TENSOR_CORES) && ROWS > 4 ? 2 : 1)
#define VALUE_ROWS ((ROWS + VALUE_SETS - 1) / VALUE_SETS)
#define V_ABREAST (GROUP_SIZE / (V_PIECES * VALUE_SETS))
#define VALUE_SET (LANE / V_PIECES % VALUE_SETS)
#define V_AT_ONCE (HAS_TENSOR_CORES ? 1 : KEYS_AT_ONCE)
#define V_BATCH (V_ABREAST * V_AT_ONCE)

/* What is loaded of a piece; packed rows are decoded as they are loaded. */
#if K_PACKED
typedef uint group_k_piece;
#else
typedef JOIN(piece_, K_FORMAT) group_k_piece;
#endif
#if V_PACKED
typedef uint group_v_piece;
#else
typedef JOIN(piece_, V_FORMAT) group_v_piece;
#endif

/* ---- Logits ---- */

/* A piece of a key as numbers; where all of a key share one factor the codes, which lack it. */
ALWAYS_INLINE void group_key(const __global uchar* row, uint piece, group_k_piece fetched,
                             const __local float* lookup_tables, float8* x) {
#if !K_PACKED
    x[0] = JOIN(floats_of_piece_, K_FORMAT)(fetched);
#else
    float16 codes = JOIN(codes16_, K_FORMAT)(row, piece * 16, HEAD_SIZE LOOKUP_TABLE);
#if !K_SHARES_FACTOR
    const float factor = load_half16(row + JOIN(FORMAT_FACTOR_AT_, K_FORMAT)(HEAD_SIZE, piece * 16 / K_GROUP)).s0;
#if K_BIASED
    const float bias = load_half16(row + JOIN(FORMAT_BIAS_AT_, K_FORMAT)(HEAD_SIZE, piece * 16 / K_GROUP)).s0;
    codes = fma(codes, (float16)(factor), (float16)(bias));
#else
    codes *= factor;
#endif
#endif
    x[0] = codes.lo;
    x[1] = codes.hi;
#endif
}

/* The inner product of a piece of a key with one of Q: of its even and of its odd elements. */
ALWAYS_INLINE float2 group_piece_dot(const float8* x, const float8* q) {
    float2 sums = x[0].s01 * q[0].s01;
    sums = fma(x[0].s23, q[0].s23, sums);
    sums = fma(x[0].s45, q[0].s45, sums);
    sums = fma(x[0].s67, q[0].s67, sums);
#if K_EIGHTS == 2
    sums = fma(x[1].s01, q[1].s01, sums);
    sums = fma(x[1].s23, q[1].s23, sums);
    sums = fma(x[1].s45, q[1].s45, sums);
    sums = fma(x[1].s67, q[1].s67, sums);
#endif
    return sums;
}

#if SUBGROUP_SIZE
#include "sdpa_subgroup_logits.h"
#else
#include "sdpa_group_logits.h"
#endif

/* ---- Values ---- */

/* The pieces of a batch of dense values; past the last one those of that. With is_partial those that are read alone. */
ALWAYS_INLINE void group_fetch_values(const __local int* seen, int is_partial, const sdpa_segment_view* view, uint key,
                                      uint count, group_v_piece* pieces) {
#if !V_PACKED
    const uint piece = LANE % V_PIECES, first = LANE / (V_PIECES * VALUE_SETS);
    if (are_aligned(view->v, view->v_stride)) {
#pragma unroll
        for (uint i = 0; i < V_AT_ONCE; ++i) {
            const uint t = min(first + i * V_ABREAST, count - 1);
            pieces[i] = 0;
            if (!is_partial || seen[t] == 1)
                pieces[i] =
                    JOIN(load_aligned_piece_, V_FORMAT)(view->v + (key + t) * view->v_stride, piece * 8, V_HEAD_SIZE);
        }
    } else {
#pragma unroll
        for (uint i = 0; i < V_AT_ONCE; ++i) {
            const uint t = min(first + i * V_ABREAST, count - 1);
            pieces[i] = 0;
            if (!is_partial || seen[t] == 1)
                pieces[i] = JOIN(load_piece_, V_FORMAT)(view->v + (key + t) * view->v_stride, piece * 8, V_HEAD_SIZE);
        }
    }
#endif
}

/* A piece of a value as numbers; of a format without biases the codes, and the factor that they lack is returned. */
ALWAYS_INLINE float group_value(const __global uchar* row, uint piece, group_v_piece fetched,
                                const __local float* lookup_tables, float8* x) {
#if !V_PACKED
    x[0] = JOIN(floats_of_piece_, V_FORMAT)(fetched);
    return 1.0f;
#else
    float16 codes = JOIN(codes16_, V_FORMAT)(row, piece * 16, V_HEAD_SIZE LOOKUP_TABLE);
    float factor = load_half16(row + JOIN(FORMAT_FACTOR_AT_, V_FORMAT)(V_HEAD_SIZE, piece * 16 / V_GROUP)).s0;
#if V_BIASED
    const float bias = load_half16(row + JOIN(FORMAT_BIAS_AT_, V_FORMAT)(V_HEAD_SIZE, piece * 16 / V_GROUP)).s0;
    codes = fma(codes, (float16)(factor), (float16)(bias));
    factor = 1.0f;
#endif
    x[0] = codes.lo;
    x[1] = codes.hi;
    return factor;
#endif
}

/* Adds this lane's pieces of a batch of values to its sums of each row. Unless all rows see all keys of a whole batch,
 * what a row does not see is left out, because it may be no number. */
ALWAYS_INLINE void group_add_values(const __local group_state* g, const sdpa_segment_view* view, uint key, uint batch,
                                    uint count, const int sees_all, const group_v_piece* pieces, float8* accumulator) {
    const uint piece = LANE % V_PIECES, first = LANE / (V_PIECES * VALUE_SETS), first_row = VALUE_SET * VALUE_ROWS;
    if (first >= V_ABREAST) return;
    /* From here all places are constants. */
    const __local int* lane_seen = g->seen + batch + first;
    const __local float* weights = g->s + first_row * TILE + batch + first;
    const __global uchar* row = view->v + (key + batch + first) * view->v_stride;
#pragma unroll
    for (uint i = 0; i < V_AT_ONCE; ++i) {
        if (!sees_all && (batch + first + i * V_ABREAST >= count || lane_seen[i * V_ABREAST] != 1)) continue;
        float8 x[V_EIGHTS];
        const float factor =
            group_value(row + i * V_ABREAST * view->v_stride, piece, pieces[V_PACKED ? 0 : i], g->lookup_tables, x);
#pragma unroll
        for (uint r = 0; r < VALUE_ROWS; ++r) {
            if (VALUE_SETS > 1 && first_row + r >= ROWS) break;
            const float weight = weights[r * TILE + i * V_ABREAST];
            if (!sees_all && is_hidden_weight(weight)) continue;
#pragma unroll
            for (uint e = 0; e < V_EIGHTS; ++e)
                accumulator[r * V_EIGHTS + e] = fma((float8)(weight * factor), x[e], accumulator[r * V_EIGHTS + e]);
        }
    }
}

/* Adds the values of a tile. Of dense ones the pieces of the next batch are on their way meanwhile. */
ALWAYS_INLINE void group_values(const sdpa_params* p, __local group_state* g, const sdpa_segment_view* view, uint key,
                                uint tile_count, float8* accumulator) {
#pragma unroll
    for (uint r = 0; r < VALUE_ROWS; ++r) {
        const uint row = VALUE_SET * VALUE_ROWS + r;
#pragma unroll
        for (uint e = 0; e < V_EIGHTS; ++e) accumulator[r * V_EIGHTS + e] *= g->rescale[row < ROWS ? row : ROWS - 1];
    }
    const int is_partial = g->is_partial || p->v_threshold != 0.0f;
    group_v_piece pieces[2][V_AT_ONCE];
#pragma unroll
    for (uint i = 0; i < V_AT_ONCE; ++i) pieces[1][i] = 0;
    group_fetch_values(g->seen, is_partial, view, key, tile_count, pieces[0]);
    for (uint batch = 0; batch < tile_count; batch += 2 * V_BATCH) {
#pragma unroll
        for (uint turn = 0; turn < 2; ++turn) {
            const uint at = batch + turn * V_BATCH, next = at + V_BATCH;
            if (next < tile_count)
                group_fetch_values(g->seen + next, is_partial, view, key + next, tile_count - next, pieces[1 - turn]);
            if (!is_partial && next <= tile_count)
                group_add_values(g, view, key, at, tile_count, 1, pieces[turn], accumulator);
            else
                group_add_values(g, view, key, at, tile_count, 0, pieces[turn], accumulator);
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* ---- A segment ---- */

#if HAS_TENSOR_CORES
#include "sdpa_tensor_segment.h"
#endif

/* What the lanes have of each row is added up in of_segment.part_of, and becomes that of the values as they are. In
 * each turn one half of the lanes gives the other what it has. All places in an accumulator are constants, also where a
 * compiler unrolls no loop with a barrier: otherwise it would be in no registers. */
ALWAYS_INLINE void group_finish(__local group_state* g, float8* accumulator) {
    const uint column = LANE % (V_PIECES * VALUE_SETS), first = LANE / (V_PIECES * VALUE_SETS);
    for (uint abreast = V_ABREAST; abreast > 1; abreast -= abreast / 2) {
        const uint kept = abreast - abreast / 2;
        __local float* given = g->parts[0] + column; /* [VALUE_ROWS * V_EIGHTS * 8][abreast / 2][columns] */
        if (first >= kept && first < abreast)
            give_floats(given + (first - kept) * (V_PIECES * VALUE_SETS), accumulator, VALUE_ROWS * V_EIGHTS);
        barrier(CLK_LOCAL_MEM_FENCE);
        if (first < abreast / 2)
            take_floats(given + first * (V_PIECES * VALUE_SETS), accumulator, VALUE_ROWS * V_EIGHTS);
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    __local float* part_of = g->of_segment.part_of;
    if (first == 0) {
        const uint first_row = VALUE_SET * VALUE_ROWS;
        __local float* piece = part_of + first_row * V_FLOATS + LANE % V_PIECES * V_EIGHTS * 8;
#pragma unroll
        for (uint i = 0; i < VALUE_ROWS * V_EIGHTS; ++i)
            if (VALUE_SETS == 1 || first_row + i / V_EIGHTS < ROWS)
                vstore8(accumulator[i], 0, piece + i / V_EIGHTS * V_FLOATS + i % V_EIGHTS * 8);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* Makes of_segment.part_of, sums of values as they are stored, sums of values as they are. */
ALWAYS_INLINE void group_restore(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    __local float* part_of = g->of_segment.part_of;
#if V_ROTATED
    local_rotate_back(part_of, ROWS, V_HEAD_SIZE, V_HEAD_SIZE);
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
#if LENGTHS
    store_unseen(p, memory, g, key_end, g->work.split_end - key_end); /* past the batch entry's length */
#endif
    group_queries(p, memory, g);
    group_mean_scores(p, memory, g);
#if HAS_TENSOR_CORES
    if (p->v_threshold == 0.0f && (K_PACKED || are_aligned(view.k, view.k_stride)) &&
        (V_PACKED || are_aligned(view.v, view.v_stride))) {
        barrier(CLK_LOCAL_MEM_FENCE); /* from_mean */
        if (tensor_attend(p, memory, g, &view, key_begin, key_end)) {
            group_restore(p, memory, g);
            return;
        }
    }
#endif
    float8 accumulator[VALUE_ROWS * V_EIGHTS];
#pragma unroll
    for (uint i = 0; i < VALUE_ROWS * V_EIGHTS; ++i) accumulator[i] = (float8)(0.0f);
    lane_rows of_lane = {NO_MAXIMUM, 0.0f, 0};
    for (uint key = key_begin; key < key_end; key += TILE) {
        const uint count = min((uint)TILE, key_end - key);
        const int is_clear = group_is_clear(p, g, key, count);
        if (!is_clear) group_classify(p, memory, g, view.slots, key, count);
        const int is_any = is_clear || g->is_any;
        if (is_any || scores_want_unseen(p))
            group_logits(p, memory, g, &view, key, count, is_clear);
        else
            store_unseen(p, memory, g, key, count);
        group_softmax(p, memory, g, SEGMENT, key, count, is_clear, &of_lane);
        if (is_any) group_values(p, g, &view, key, count, accumulator);
    }
    const float sum = sum_of_row(g, of_lane.sum);
    const uint skipped = count_of_row(g, of_lane.skipped);
    if (LANE_ROW < ROWS && LANE_OF_ROW == 0) {
        g->segment_maximum[LANE_ROW] = of_lane.maximum;
        g->segment_sum[LANE_ROW] = sum;
        g->skipped[LANE_ROW] += skipped;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    group_finish(g, accumulator);
    group_restore(p, memory, g);
}
