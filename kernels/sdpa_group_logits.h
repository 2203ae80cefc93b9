/* Logits of a group of many work-items: the parts of inner products that lanes have are added up through local memory.
 * Needs before it: what sdpa_group_segment.h has before it, and its pieces. */
#pragma winnow repeatable

#define K_ABREAST (GROUP_SIZE / K_PIECES)

/* Of a key and a row, the parts of the pieces lie side by side; from pair to pair it is an odd number of 16 bytes, so
 * that lanes side by side meet in no bank. */
#define PART_STRIDE (((K_PIECES + 3) / 4 | 1) * 4)
#define KEYS_THAT_FIT LESSER(TILE, PARTS_FLOATS / (DOT_ROWS * PART_STRIDE))
#define K_AT_ONCE LESSER(KEYS_AT_ONCE, LARGER(KEYS_THAT_FIT / K_ABREAST, 1))
#define K_BATCH (K_ABREAST * K_AT_ONCE)

/* Packed keys are read and decoded once for all rows, where a turn takes some of them alone. */
#define KEEPS_KEYS (K_PACKED && ROWS > DOT_ROWS)
#define KEPT_KEYS (KEEPS_KEYS ? K_AT_ONCE : 1)

/* The pieces of a batch of dense keys; past the last key those of that. */
ALWAYS_INLINE void group_fetch_keys(const sdpa_segment_view* view, uint key, uint count, group_k_piece* pieces) {
#if !K_PACKED
    const uint piece = LANE % K_PIECES, first = LANE / K_PIECES;
    if (are_aligned(view->k, view->k_stride)) {
#pragma unroll
        for (uint i = 0; i < K_AT_ONCE; ++i) {
            const uint t = min(first + i * K_ABREAST, count - 1);
            pieces[i] = JOIN(load_aligned_piece_, K_FORMAT)(view->k + (key + t) * view->k_stride, piece * 8, HEAD_SIZE);
        }
    } else {
#pragma unroll
        for (uint i = 0; i < K_AT_ONCE; ++i) {
            const uint t = min(first + i * K_ABREAST, count - 1);
            pieces[i] = JOIN(load_piece_, K_FORMAT)(view->k + (key + t) * view->k_stride, piece * 8, HEAD_SIZE);
        }
    }
#endif
}

/* This lane's piece of the i-th of its keys of a batch, past the last one that of the last one, and the factor that it
 * lacks. */
ALWAYS_INLINE float group_key_of_batch(const __local group_state* g, const sdpa_segment_view* view, uint key,
                                       uint count, const uint i, group_k_piece fetched, float8* x) {
    const uint piece = LANE % K_PIECES, first = LANE / K_PIECES;
    const __global uchar* row = view->k + (key + min(first + i * K_ABREAST, count - 1)) * view->k_stride;
    group_key(row, piece, fetched, g->lookup_tables, x);
#if K_SHARES_FACTOR
    return load_half16(row + JOIN(FORMAT_FACTOR_AT_, K_FORMAT)(HEAD_SIZE, 0)).s0;
#else
    return 1.0f;
#endif
}

/* All of them, where they are kept. */
ALWAYS_INLINE void group_keep_keys(const __local group_state* g, const sdpa_segment_view* view, uint key, uint count,
                                   float8* x, float* factors) {
#if KEEPS_KEYS
    if (LANE / K_PIECES >= K_ABREAST) return;
#pragma unroll
    for (uint i = 0; i < K_AT_ONCE; ++i) factors[i] = group_key_of_batch(g, view, key, count, i, 0, x + i * K_EIGHTS);
#endif
}

/* This lane's parts of the inner products of DOT_ROWS rows from `first_row` on with keys of a batch. Rows past the last
 * one repeat it, keys past the last one are that, and keys that no row sees have parts that nobody reads: so nothing
 * keeps a compiler from loading for all keys before it computes for the first. */
ALWAYS_INLINE void group_dots(__local group_state* g, __local float* parts, const sdpa_segment_view* view, uint key,
                              uint count, const uint first_row, const group_k_piece* pieces, const float8* kept,
                              const float* kept_factors) {
    const uint piece = LANE % K_PIECES, first = LANE / K_PIECES;
    if (first >= K_ABREAST) return;
    float8 q[DOT_ROWS * K_EIGHTS];
#pragma unroll
    for (uint r = 0; r < DOT_ROWS; ++r) {
        const uint row = first_row + r < ROWS ? first_row + r : ROWS - 1;
        const __local float4* from = (const __local float4*)(g->of_segment.q + row * Q_FLOATS + piece * 8 * K_EIGHTS);
#pragma unroll
        for (uint i = 0; i < K_EIGHTS; ++i) q[r * K_EIGHTS + i] = (float8)(from[2 * i], from[2 * i + 1]);
    }
    __local float* lane_parts = parts + first * DOT_ROWS * PART_STRIDE + piece; /* from here all places are constants */
#pragma unroll
    for (uint i = 0; i < K_AT_ONCE; ++i) {
#if KEEPS_KEYS
        const float8* x = kept + i * K_EIGHTS;
        const float factor = kept_factors[i];
#else
        float8 x[K_EIGHTS];
        const float factor = group_key_of_batch(g, view, key, count, i, pieces[K_PACKED ? 0 : i], x);
#endif
#pragma unroll
        for (uint r = 0; r < DOT_ROWS; ++r) {
            const float2 sums = group_piece_dot(x, q + r * K_EIGHTS);
            lane_parts[(i * K_ABREAST * DOT_ROWS + r) * PART_STRIDE] = (sums.x + sums.y) * factor;
        }
    }
}

/* The sum of what the pieces have. */
ALWAYS_INLINE float group_dot(const __local float* parts) {
    const __local float4* fours = (const __local float4*)parts;
    float4 sums = (float4)(0.0f);
#pragma unroll
    for (uint i = 0; i < K_PIECES / 4; ++i) sums += fours[i];
    float sum = (sums.x + sums.y) + (sums.z + sums.w);
#pragma unroll
    for (uint i = K_PIECES / 4 * 4; i < K_PIECES; ++i) sum += parts[i];
    return sum;
}

ALWAYS_INLINE void group_logits(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                const sdpa_segment_view* view, uint key, uint tile_count, const int is_clear) {
    const int takes_all = scores_want_unseen(p), is_plain = !has_transform(p);
    group_k_piece pieces[K_AT_ONCE];
    float8 kept[KEPT_KEYS * K_EIGHTS];
    float kept_factors[KEPT_KEYS];
    uint turn = 0;
    group_fetch_keys(view, key, tile_count, pieces);
    for (uint batch = 0; batch < tile_count; batch += K_BATCH) {
        const uint count = min(tile_count - batch, (uint)K_BATCH), next = batch + K_BATCH;
        const __local int* seen = g->seen + batch;
        group_keep_keys(g, view, key + batch, count, kept, kept_factors);
#pragma unroll
        for (uint first_row = 0; first_row < ROWS; first_row += DOT_ROWS, ++turn) {
            __local float* parts = g->parts[turn % 2];
            group_dots(g, parts, view, key + batch, count, first_row, pieces, kept, kept_factors);
            if (first_row + DOT_ROWS >= ROWS && next < tile_count)
                group_fetch_keys(view, key + next, tile_count - next, pieces);
            barrier(CLK_LOCAL_MEM_FENCE);
            for (uint i = LANE; i < DOT_ROWS * count; i += GROUP_SIZE) {
                const uint r = first_row + i % DOT_ROWS, t = i / DOT_ROWS;
                if (r >= ROWS) continue;
                const float dot = is_clear || takes_all || seen[t] ? group_dot(parts + i * PART_STRIDE) : 0.0f;
                const float logit = fma(dot, p->scale, g->from_mean[r]);
                if (is_clear) {
                    g->s[r * TILE + batch + t] = logit;
                    if (logit == -INFINITY) g->is_partial = 1;
                } else if (is_plain)
                    group_plain(g, r, batch + t, logit);
                else
                    group_transform(p, memory, g, r, key, batch + t, logit);
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
