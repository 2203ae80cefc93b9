/* sdpa_prefill: attention of many query tokens. "cpu" shape: one work-item per work-group, no barriers, no local
 * memory, vectors of 16 floats.
 *
 *                     keys of one KV head, in blocks of KEYS ->
 *                  |  block  |  block  |  block  |
 *     ROWS rows    |  group walks over the blocks |   rows: the query heads that share the KV head, times tokens
 *
 * Per block that any row sees: K transposed to floats [HEAD_SIZE][KEYS], V converted to floats [KEYS][V chunks];
 * logits by a micro-kernel of 4 rows x 64 keys, the transforms where the block needs them, softmax, and the values
 * by a micro-kernel of 4 rows x 64 elements.
 *
 * Layouts: sdpa_params.h. Needs -D:
 *     K_FORMAT, V_FORMAT       a format each; -DUSES_<format> with it
 *     HEAD_SIZE, V_HEAD_SIZE   elements, 1 .. 576
 *     ROWS                     a multiple of 16
 *     SINGLE_LAUNCH            1: the last group combines the splits; 0: sdpa_combine, a launch of its own, does
 */
#include "sdpa_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT) || !defined(HEAD_SIZE) || !defined(V_HEAD_SIZE) || !defined(ROWS) || \
    !defined(SINGLE_LAUNCH)
#error "sdpa_prefill.cl needs -D K_FORMAT, V_FORMAT, HEAD_SIZE, V_HEAD_SIZE, ROWS and SINGLE_LAUNCH"
#endif

#include "formats.h"
#include "format_any.h"
#include "float16_math.h"
#include "rotation.h"
#include "sdpa_chunks.h"
#include "sdpa_rows.h"

#define KEYS 64
#define KEY_VECTORS (KEYS / 16)

/* Columns j of 16 vectors to vectors: four rounds of interleaving x[i] with x[i + 8]. */
static inline void transpose16(float16* x) {
    float16 y[16];
#pragma unroll
    for (uint round = 0; round < 4; ++round) {
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            y[2 * i] = SHUFFLE(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            y[2 * i + 1] = SHUFFLE(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
#pragma unroll
        for (uint i = 0; i < 16; ++i) x[i] = y[i];
    }
}

/* Keys from `key` as columns: kt [HEAD_SIZE, at least 16][KEY_VECTORS]. Keys past `last` repeat it. */
static inline void load_keys_transposed(float16* kt, const __global uchar* k, long stride, uint key, uint last) {
    for (uint i = 0; i < KEY_VECTORS; ++i)
        for (uint chunk = 0; chunk < K_CHUNKS; ++chunk) {
            float16 x[16];
#pragma unroll
            for (uint t = 0; t < 16; ++t) {
                const __global uchar* row = k + (long)min(key + i * 16 + t, last) * stride;
                x[t] = load_key_overlapping(row, chunk);
#if K_ROW_SCALED
                x[t] *= JOIN(row_scale_, K_FORMAT)(row, HEAD_SIZE);
#endif
            }
            transpose16(x);
#pragma unroll
            for (uint d = 0; d < 16; ++d) kt[(CHUNK_START(chunk, HEAD_SIZE) + d) * KEY_VECTORS + i] = x[d];
        }
}

/* Four rows' logits with all keys of the block. q: [4][HEAD_SIZE], s: [4][KEY_VECTORS]. */
static inline void dot_4_rows(const float* q, const float16* kt, float scale, float16* s) {
    float16 sum[4][KEY_VECTORS];
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint i = 0; i < KEY_VECTORS; ++i) sum[r][i] = (float16)(0.0f);
    for (uint d = 0; d < HEAD_SIZE; ++d) {
#pragma unroll
        for (uint i = 0; i < KEY_VECTORS; ++i) {
            const float16 x = kt[d * KEY_VECTORS + i];
#pragma unroll
            for (uint r = 0; r < 4; ++r) sum[r][i] = fma((float16)(q[r * HEAD_SIZE + d]), x, sum[r][i]);
        }
    }
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint i = 0; i < KEY_VECTORS; ++i) s[r * KEY_VECTORS + i] = scale * sum[r][i];
}

/* Adds weight x value of `count` keys to `size` chunks, from `chunk`, of four rows' accumulators, after scaling them.
 * accumulator: [4][V_CHUNKS], weights: [4][KEYS], values: [KEYS][V_CHUNKS]. */
static inline void add_values_4_rows(float16* accumulator, const float* rescale, const float* weights,
                                     const float16* values, uint count, uint chunk, const uint size) {
    float16 sum[4][4];
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) sum[r][c] = accumulator[r * V_CHUNKS + chunk + c] * rescale[r];
    for (uint t = 0; t < count; ++t) {
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            const float16 x = values[t * V_CHUNKS + chunk + c];
#pragma unroll
            for (uint r = 0; r < 4; ++r) sum[r][c] = fma((float16)(weights[r * KEYS + t]), x, sum[r][c]);
        }
    }
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) accumulator[r * V_CHUNKS + chunk + c] = sum[r][c];
}

/* The same for one row and values that are not all finite: those that the row does not see must not reach it, not
 * even as 0 x NaN. seen: [KEYS], all bits or none. */
static inline void add_seen_values(float16* accumulator, float rescale, const float* weights, const int* seen,
                                   const float16* values, uint count) {
    for (uint c = 0; c < V_CHUNKS; ++c) {
        float16 sum = accumulator[c] * rescale;
        for (uint t = 0; t < count; ++t)
            sum = fma((float16)(weights[t]), as_float16(as_int16(values[t * V_CHUNKS + c]) & seen[t]), sum);
        accumulator[c] = sum;
    }
}

/* What one group does. A function of its own, because PoCL compiles the body of a kernel three times. */
__attribute__((noinline)) static void attend(const sdpa_params* p, const sdpa_memory* memory, uint group_number) {
    sdpa_unit unit;
    sdpa_unit_init(&unit, p, group_number, p->splits);
    const uint rows = (unit.rows + 3) & ~3u; /* the micro-kernels take four at a time */

    float q[ROWS * HEAD_SIZE];
    float16 kt[(HEAD_SIZE < 16 ? 16 : HEAD_SIZE) * KEY_VECTORS];
    float16 values[KEYS * V_CHUNKS];
    float16 s[ROWS * KEY_VECTORS];
    int seen[ROWS * KEYS];
    float16 accumulator[ROWS * V_CHUNKS];
    float maximum[ROWS], new_maximum[ROWS], rescale[ROWS], sum[ROWS];
    uint skipped[ROWS]; /* every value is read: the rows of a block seldom agree on one to pass over */
    for (uint r = 0; r < ROWS; ++r) {
        maximum[r] = new_maximum[r] = NO_MAXIMUM;
        sum[r] = 0.0f;
        skipped[r] = 0;
    }
    for (uint r = 0; r < rows; ++r) {
        const __global uchar* row = q_row(p, memory, &unit, r);
#if K_ROTATED
        float16 rotated[K_CHUNKS];
        load_query(row, p->q_type, rotated);
        for (uint c = 0; c < K_CHUNKS; ++c) vstore16(rotated[c], 0, q + r * HEAD_SIZE + c * 16);
#else
        for (uint d = 0; d < HEAD_SIZE; ++d) q[r * HEAD_SIZE + d] = load_any(row, p->q_type, d);
#endif
    }
    for (uint i = 0; i < ROWS * V_CHUNKS; ++i) accumulator[i] = (float16)(0.0f);

    const __global uchar* k = k_plane(p, memory, &unit);
    const __global uchar* v = v_plane(p, memory, &unit);
    const int has_transform = sdpa_has_transform(p);
    const int scores_of_unseen = p->scores_mode == SDPA_SCORES_RAW || p->scores_mode == SDPA_SCORES_SOFTCAPPED;

    for (uint key = unit.key_begin; key < unit.key_end; key += KEYS) {
        const uint count = min((uint)KEYS, unit.key_end - key);

        /* Classify: does every row see all of the block, or none any of it? Of a block cut short, `all` means what
         * there is. */
        int none = (int)key >= unit.any_end || (int)(key + count) <= unit.any_begin;
        int all = (int)key >= unit.all_begin && (int)(key + count) <= unit.all_end;
        if (p->mask_type != TYPE_NONE && !none) {
            int16 any_shown = 0;
            for (uint r = 0; r < unit.rows && !any_lane(any_shown); ++r) {
                const __global uchar* row = mask_row(p, memory, &unit, r);
                for (uint i = 0; i * 16 < count; ++i)
                    any_shown |= load16_mask(p, row, key + i * 16, part_of_tile(count, i)) != -INFINITY;
            }
            none = !any_lane(any_shown);
        }
        if (none && !scores_of_unseen) {
            if (p->scores_mode != SDPA_SCORES_NONE) sdpa_store_unseen(p, memory, &unit, key, count);
            continue;
        }

        /* Logits. */
        load_keys_transposed(kt, k, p->k.stride[2], key, unit.key_end - 1);
        for (uint r = 0; r < rows; r += 4) dot_4_rows(q + r * HEAD_SIZE, kt, p->scale, s + r * KEY_VECTORS);
        int hide = !all || count < KEYS;
        uint used = count; /* keys after the last one that a row sees have no weight */
        if (has_transform || hide) {
            int16 hidden = 0, last_seen = 0;
            for (uint r = 0; r < rows; ++r)
                for (uint i = 0; i < KEY_VECTORS; ++i) {
                    const uint part = part_of_tile(count, i);
                    float16 bias = (float16)(0.0f);
                    if (p->mask_type != TYPE_NONE)
                        bias = load16_mask(p, mask_row(p, memory, &unit, r), key + i * 16, part);
                    int16 visible;
                    s[r * KEY_VECTORS + i] =
                        sdpa_transform(p, memory, &unit, r, key + i * 16, part, s[r * KEY_VECTORS + i], bias, &visible);
                    vstore16(visible, r * KEY_VECTORS + i, seen);
                    hidden |= ~visible & (LANE_INDEX < (int)part);
                    last_seen = max(last_seen, visible & ((int)(i * 16 + 1) + LANE_INDEX));
                }
            all &= !any_lane(hidden);
            hide |= !all;
            used = largest_lane(last_seen);
        }

        /* Softmax over the block; s becomes the weights. */
        for (uint r = 0; r < rows; ++r) {
            float16 highest = (float16)(NO_MAXIMUM);
            for (uint i = 0; i < KEY_VECTORS; ++i) highest = larger(s[r * KEY_VECTORS + i], highest);
            const float other = maximum_of_lanes(highest);
            new_maximum[r] = other > maximum[r] ? other : maximum[r];
        }
        for (uint r = 0; r < rows; r += 16) {
            vstore16(exp16(vload16(0, maximum + r) - vload16(0, new_maximum + r)), 0, rescale + r);
            vstore16(vload16(0, new_maximum + r), 0, maximum + r);
        }
        for (uint r = 0; r < rows; ++r) {
            float16 weights = (float16)(0.0f);
            for (uint i = 0; i < KEY_VECTORS; ++i) {
                float16 weight = exp16(s[r * KEY_VECTORS + i] - maximum[r]);
                if (hide) weight = select((float16)(0.0f), weight, vload16(r * KEY_VECTORS + i, seen));
                s[r * KEY_VECTORS + i] = weight;
                weights += weight;
            }
            sum[r] = sum[r] * rescale[r] + sum_of_lanes(weights);
        }

        /* Values. */
        int16 special = 0;
        for (uint t = 0; t < used; ++t) {
            const __global uchar* row = v + (long)(key + t) * p->v.stride[2];
            for (uint c = 0; c < V_CHUNKS; ++c) {
                float16 x = load_value(row, c);
#if V_ROW_SCALED
                x *= JOIN(row_scale_, V_FORMAT)(row, V_HEAD_SIZE);
#endif
                values[t * V_CHUNKS + c] = x;
                special |= (as_int16(x) & 0x7f800000) == 0x7f800000;
            }
        }
        const float* weights = (const float*)s;
        if (all || !any_lane(special)) {
            for (uint r = 0; r < rows; r += 4) {
                float16* rows_accumulator = accumulator + r * V_CHUNKS;
                for (uint c = 0; c + 4 <= V_CHUNKS; c += 4)
                    add_values_4_rows(rows_accumulator, rescale + r, weights + r * KEYS, values, used, c, 4);
#if V_CHUNKS % 4
                add_values_4_rows(rows_accumulator, rescale + r, weights + r * KEYS, values, used, V_CHUNKS / 4 * 4,
                                  V_CHUNKS % 4);
#endif
            }
        } else {
            for (uint r = 0; r < rows; ++r)
                add_seen_values(accumulator + r * V_CHUNKS, rescale[r], weights + r * KEYS, seen + r * KEYS, values,
                                used);
        }
    }
    const sdpa_result result = {accumulator, maximum, sum, skipped};
    sdpa_leave_result(p, memory, &unit, &result);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
sdpa_prefill(const sdpa_params p, const __global uchar* q_memory, const __global uchar* k_memory,
             const __global uchar* v_memory, __global uchar* out_memory, const __global uchar* mask_memory,
             const __global uchar* slopes_memory, const __global uchar* alibi_memory,
             const __global uchar* sinks_memory, __global uchar* scores_memory, __global uchar* stats_memory,
             __global uchar* skipped_memory, __global uchar* scratch_memory, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a rehearsal: the launch only makes the driver load the kernel */
    const sdpa_memory memory = {q_memory,     k_memory,   v_memory,      mask_memory,  slopes_memory,  alibi_memory,
                                sinks_memory, out_memory, scores_memory, stats_memory, skipped_memory, scratch_memory};
    attend(&p, &memory, (uint)get_group_id(0) + group_base);
}

#if !SINGLE_LAUNCH
#include "sdpa_combine.h"
#endif
