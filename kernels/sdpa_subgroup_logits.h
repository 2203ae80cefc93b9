/* Logits of a group of subgroups. The lanes of a key are a part of a subgroup, and add up what they have of it among
 * themselves: a lane keeps one half of its sums and gives the other, again and again, until each has few, of all lanes.
 * So no lane waits for another subgroup before the tile's end. Needs before it: what sdpa_group_segment.h has before
 * it, its pieces, and subgroup.h. */
#pragma winnow repeatable

/* The lanes of a key, the pieces that each of these takes, and keys that a group takes side by side. */
#define K_LANES LESSER(POWER_OF_2(K_PIECES), SUBGROUP_SIZE)
#define K_PARTS ((K_PIECES + K_LANES - 1) / K_LANES)
#define K_ABREAST (GROUP_SIZE / K_LANES)

/* Rows at once, as Q for them is in registers, and keys at once of a lane. */
#define K_ROWS LESSER(ROWS, LARGER((HAS_TENSOR_CORES ? 2 : 8) / (K_PARTS * K_EIGHTS), 1))
#define K_AT_ONCE LESSER(HAS_TENSOR_CORES ? 1 : KEYS_AT_ONCE, LARGER(TILE / K_ABREAST, 1))
#define K_BATCH (K_ABREAST * K_AT_ONCE)

/* A lane's sums: of each of its keys K_ROWS rows and some that are 0; and how many it has in the end. */
#define K_SUM_ROWS POWER_OF_2(K_ROWS)
#define K_SUMS (K_AT_ONCE * K_SUM_ROWS)
#define K_WHOLE_SUMS LARGER(K_SUMS / K_LANES, 1)

/* The piece that a lane takes as its `part`-th; past the last one that again, of which nothing is added. */
#define K_PIECE_OF(lane, part)                                                                                         \
    (K_PIECES % K_LANES ? min((lane) + (part)*K_LANES, (uint)K_PIECES - 1) : (lane) + (part)*K_LANES)

/* The pieces of a batch of dense keys; past the last key those of that. */
ALWAYS_INLINE void group_fetch_keys(const sdpa_segment_view* view, uint key, uint count, group_k_piece* pieces) {
#if !K_PACKED
    const uint lane = LANE % K_LANES, first = LANE / K_LANES * K_AT_ONCE;
    const int aligned = are_aligned(view->k, view->k_stride);
    const __global uchar* row = view->k + (key + min(first, count - 1)) * view->k_stride;
#pragma unroll
    for (uint i = 0; i < K_AT_ONCE; ++i) {
        if (i > 0 && first + i < count) row += view->k_stride;
#pragma unroll
        for (uint part = 0; part < K_PARTS; ++part) {
            const uint piece = K_PIECE_OF(lane, part);
            pieces[i * K_PARTS + part] = aligned ? JOIN(load_aligned_piece_, K_FORMAT)(row, piece * 8, HEAD_SIZE)
                                                 : JOIN(load_piece_, K_FORMAT)(row, piece * 8, HEAD_SIZE);
        }
    }
#endif
}

/* Gives away one half of `count` sums for the other half of the lane that differs in `bit`. */
ALWAYS_INLINE void group_halve(float* sums, const uint count, const uint bit) {
    if (count == 1) {
        sums[0] += shuffle_xor(sums[0], bit);
        return;
    }
    const int keeps_upper = (LANE & bit) != 0;
#pragma unroll
    for (uint i = 0; i < count / 2; ++i) {
        const float low = sums[i], high = sums[i + count / 2]; /* a choice between places would be memory */
        sums[i] = (keeps_upper ? high : low) + shuffle_xor(keeps_upper ? low : high, bit);
    }
}

/* Sums of each of a key's lanes become sums over them: lane l of K_LANES has those from l * K_SUMS / K_LANES on. */
#define HALVE_AT(i)                                                                                                    \
    if (K_LANES >> (i) > 1) group_halve(sums, LARGER(K_SUMS >> (i), 1), LARGER(K_LANES >> ((i) + 1), 1))

/* The inner products of K_ROWS rows from `first_row` on with keys of a batch, so far as this lane has them in the end.
 * Keys past the last one are that, and keys that no row sees have products that nobody reads: so nothing keeps a
 * compiler from loading for all keys before it computes for the first. */
ALWAYS_INLINE void group_dots(const __local group_state* g, const sdpa_segment_view* view, uint key, uint count,
                              const float8* q, const group_k_piece* pieces, float* sums) {
    const uint lane = LANE % K_LANES, first = LANE / K_LANES * K_AT_ONCE;
    const __global uchar* row = view->k + (key + min(first, count - 1)) * view->k_stride;
#pragma unroll
    for (uint i = 0; i < K_AT_ONCE; ++i) {
        if (i > 0 && first + i < count) row += view->k_stride;
#pragma unroll
        for (uint r = 0; r < K_SUM_ROWS; ++r) sums[i * K_SUM_ROWS + r] = 0.0f;
#pragma unroll
        for (uint part = 0; part < K_PARTS; ++part) {
            const uint piece = K_PIECE_OF(lane, part);
            const int is_mine = K_PIECES % K_LANES == 0 || lane + part * K_LANES < K_PIECES;
            float8 x[K_EIGHTS];
            group_key(row, piece, pieces[K_PACKED ? 0 : i * K_PARTS + part], g->lookup_tables, x);
#pragma unroll
            for (uint r = 0; r < K_ROWS; ++r) {
                const float2 both = group_piece_dot(x, q + (r * K_PARTS + part) * K_EIGHTS);
                if (is_mine) sums[i * K_SUM_ROWS + r] += both.x + both.y;
            }
        }
    }
    HALVE_AT(0);
    HALVE_AT(1);
    HALVE_AT(2);
    HALVE_AT(3);
    HALVE_AT(4);
    HALVE_AT(5);
}

/* Q of K_ROWS rows from `first_row` on, for the pieces of this lane; rows past the last one repeat it. */
ALWAYS_INLINE void group_lane_queries(const __local group_state* g, const uint first_row, float8* q) {
    const uint lane = LANE % K_LANES;
#pragma unroll
    for (uint r = 0; r < K_ROWS; ++r) {
        const uint row = first_row + r < ROWS ? first_row + r : ROWS - 1;
#pragma unroll
        for (uint part = 0; part < K_PARTS; ++part) {
            const uint piece = K_PIECE_OF(lane, part);
            const __local float4* from =
                (const __local float4*)(g->of_segment.q + row * Q_FLOATS + piece * 8 * K_EIGHTS);
#pragma unroll
            for (uint i = 0; i < K_EIGHTS; ++i)
                q[(r * K_PARTS + part) * K_EIGHTS + i] = (float8)(from[2 * i], from[2 * i + 1]);
        }
    }
}

ALWAYS_INLINE void group_logits(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                const sdpa_segment_view* view, uint key, uint tile_count, const int is_clear) {
    const int takes_all = scores_want_unseen(p), is_plain = !has_transform(p);
    const uint first = LANE / K_LANES * K_AT_ONCE, first_sum = LANE % K_LANES * K_SUMS / K_LANES;
    /* Several lanes may have the same sum: the first of them goes on with it. */
    const int has_sums = K_SUMS >= K_LANES || LANE % LARGER(K_LANES / K_SUMS, 1) == 0;
#pragma unroll
    for (uint first_row = 0; first_row < ROWS; first_row += K_ROWS) {
        float8 q[K_ROWS * K_PARTS * K_EIGHTS];
        group_lane_queries(g, first_row, q);
        group_k_piece pieces[2][K_AT_ONCE * K_PARTS];
        group_fetch_keys(view, key, tile_count, pieces[0]);
        for (uint batch = 0; batch < tile_count; batch += 2 * K_BATCH) {
#pragma unroll
            for (uint turn = 0; turn < 2; ++turn) {
                const uint at = batch + turn * K_BATCH, next = at + K_BATCH;
                if (at >= tile_count) break;
                if (next < tile_count) group_fetch_keys(view, key + next, tile_count - next, pieces[1 - turn]);
                float factors[K_WHOLE_SUMS], sums[K_SUMS];
#if K_SHARES_FACTOR
#pragma unroll
                for (uint j = 0; j < K_WHOLE_SUMS; ++j) {
                    const uint t = at + first + (first_sum + j) / K_SUM_ROWS;
                    const __global uchar* row = view->k + (key + min(t, tile_count - 1)) * view->k_stride;
                    factors[j] = load_half16(row + JOIN(FORMAT_FACTOR_AT_, K_FORMAT)(HEAD_SIZE, 0)).s0;
                }
#endif
                group_dots(g, view, key + at, tile_count - at, q, pieces[turn], sums);
#pragma unroll
                for (uint j = 0; j < K_WHOLE_SUMS; ++j) {
                    const uint in_rows = (first_sum + j) % K_SUM_ROWS, r = first_row + in_rows;
                    const uint t = at + first + (first_sum + j) / K_SUM_ROWS;
                    if (!has_sums || in_rows >= K_ROWS || r >= ROWS || t >= tile_count) continue;
#if K_SHARES_FACTOR
                    sums[j] *= factors[j];
#endif
                    const float dot = is_clear || takes_all || g->seen[t] ? sums[j] : 0.0f;
                    const float logit = fma(dot, p->scale, g->from_mean[r]);
                    if (is_clear) {
                        g->s[r * TILE + t] = logit;
                        if (logit == -INFINITY) g->is_partial = 1;
                    } else if (is_plain)
                        group_plain(g, r, t, logit);
                    else
                        group_transform(p, memory, g, r, key, t, logit);
                }
            }
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}
