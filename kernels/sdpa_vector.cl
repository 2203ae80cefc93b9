/* sdpa_vector: attention of a few query tokens, the decode step. "cpu" shape: one work-item per work-group, no
 * barriers, no local memory, vectors of 16 floats.
 *
 *                     keys of one KV head ->
 *                  |  split 0  |  split 1  |  ...
 *     ROWS rows    |  group    |  group    |         rows: the query heads that share the KV head, times query tokens
 *
 * A group walks over its keys in tiles of TILE. Per tile: ROWS x TILE logits, each K vector loaded once for all
 * rows; the transforms, only where the tile needs them; softmax over the tile; then the values, in slices of a row
 * so that the sums stay in registers. Under a threshold only the runs of values whose weights matter to some row.
 *
 * Layouts: sdpa_params.h. Needs -D:
 *     K_FORMAT, V_FORMAT       a format each; -DUSES_<format> with it
 *     HEAD_SIZE, V_HEAD_SIZE   elements, 1 .. 576
 *     ROWS                     1 .. 6 or 8
 *     SINGLE_LAUNCH            1: the last group combines the splits; 0: sdpa_combine, a launch of its own, does
 */
#include "sdpa_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT) || !defined(HEAD_SIZE) || !defined(V_HEAD_SIZE) || !defined(ROWS) || \
    !defined(SINGLE_LAUNCH)
#error "sdpa_vector.cl needs -D K_FORMAT, V_FORMAT, HEAD_SIZE, V_HEAD_SIZE, ROWS and SINGLE_LAUNCH"
#endif

#include "formats.h"
#include "format_any.h"
#include "float16_math.h"
#include "rotation.h"
#include "sdpa_chunks.h"
#include "sdpa_rows.h"

#ifndef TILE
#define TILE 32
#endif
#define TILE_VECTORS (TILE / 16)

/* A limit is this much lower, so that rounding does not pass over a weight at the threshold. */
#define BELOW_ROUNDING 0.99999f

/* Keys between a use and the prefetches for it, as far as the split reaches. */
#define NEAR TILE
#define FAR 64

/* Rows whose sums for four tokens fit the registers together. */
#define ROWS_AT_ONCE (ROWS <= 6 ? ROWS : 4)

/* Chunks of V whose sums for all rows fit the registers together. */
#ifndef SLICE
#define SLICE (ROWS == 1 ? 8 : ROWS <= 5 ? 4 : ROWS <= 6 && !V_PACKED ? 3 : 2)
#endif

/* Chunks of a key that the loop over them takes at once: with packed ones, where they lie should be a constant. */
#define CHUNKS_AT_ONCE (K_PACKED ? 8 : 2)

#include "sdpa_factors.h"

/* A chunk of a key: of a packed one the codes, times their factors, which are given as [K_GROUPS][TILE], unless they
 * all have the same. */
static inline float16 load_key_of_16(const __global uchar* row, uint chunk, const float* factors, uint key) {
#if !K_PACKED
    return load_key(row, chunk);
#elif K_GROUP == HEAD_SIZE
    return JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE);
#else
    return JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE) * factors[chunk * 16 / K_GROUP * TILE + key];
#endif
}

/* A chunk of a value; of a packed one the codes. */
static inline float16 load_value_codes(const __global uchar* row, uint chunk) {
#if V_PACKED
    return JOIN(codes16_, V_FORMAT)(row, chunk * 16, V_HEAD_SIZE);
#else
    return load_value(row, chunk);
#endif
}

/* Inner products of all rows with 16 keys, asking for what comes later on the way. `last` is the last key that may
 * be read: later ones repeat it. Of packed keys: factors and biases are
 * [K_GROUPS][TILE], and q_sums, [ROWS][K_GROUPS], are those of the elements of q. */
static inline void dot16(const float16* q, const float* q_sums, const __global uchar* k, const float16* factors,
                         const float16* biases, long stride, uint key, uint last, long near, long far, float scale,
                         float16* s, uint s_step) {
    float16 sums[ROWS * 4];
    for (uint four = 0; four < 4; ++four) {
        const __global uchar* k0 = k + (long)min(key + four * 4 + 0, last) * stride;
        const __global uchar* k1 = k + (long)min(key + four * 4 + 1, last) * stride;
        const __global uchar* k2 = k + (long)min(key + four * 4 + 2, last) * stride;
        const __global uchar* k3 = k + (long)min(key + four * 4 + 3, last) * stride;
        for (uint first = 0; first < ROWS; first += ROWS_AT_ONCE) {
            float16 sum[ROWS_AT_ONCE][4];
#pragma unroll
            for (uint r = 0; r < ROWS_AT_ONCE; ++r) sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = (float16)(0.0f);
#pragma unroll CHUNKS_AT_ONCE
            for (uint chunk = 0; chunk < K_CHUNKS; ++chunk) {
                if (first == 0) {
                    PREFETCH_CHUNK(k0, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                    PREFETCH_CHUNK(k1, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                    PREFETCH_CHUNK(k2, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                    PREFETCH_CHUNK(k3, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                }
                const float16 x0 = load_key_of_16(k0, chunk, (const float*)factors, four * 4 + 0);
                const float16 x1 = load_key_of_16(k1, chunk, (const float*)factors, four * 4 + 1);
                const float16 x2 = load_key_of_16(k2, chunk, (const float*)factors, four * 4 + 2);
                const float16 x3 = load_key_of_16(k3, chunk, (const float*)factors, four * 4 + 3);
#pragma unroll
                for (uint r = 0; r < ROWS_AT_ONCE; ++r) {
                    const float16 y = q[(first + r) * K_CHUNKS + chunk];
                    sum[r][0] = fma(x0, y, sum[r][0]);
                    sum[r][1] = fma(x1, y, sum[r][1]);
                    sum[r][2] = fma(x2, y, sum[r][2]);
                    sum[r][3] = fma(x3, y, sum[r][3]);
                }
            }
#pragma unroll
            for (uint r = 0; r < ROWS_AT_ONCE; ++r)
                sums[(first + r) * 4 + four] = sum_lanes_of_4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        float16 dot = sum_blocks_of_4(sums[r * 4], sums[r * 4 + 1], sums[r * 4 + 2], sums[r * 4 + 3]);
#if K_PACKED && K_GROUP == HEAD_SIZE
        dot *= factors[0];
#endif
        s[r * s_step] = dot;
    }
#if K_BIASED
    for (uint g = 0; g < K_GROUPS; ++g) {
        const float16 bias = biases[g * TILE_VECTORS];
        for (uint r = 0; r < ROWS; ++r) s[r * s_step] = fma(bias, (float16)(q_sums[r * K_GROUPS + g]), s[r * s_step]);
    }
#endif
    for (uint r = 0; r < ROWS; ++r) s[r * s_step] *= scale;
}

#if V_PACKED
#define GROUP_OF_CHUNK(chunk) ((chunk) * 16 / V_GROUP)
#else
#define GROUP_OF_CHUNK(chunk) 0
#endif

/* Adds weight x value of `count` keys to `size` chunks of the accumulator, after scaling it. weights:
 * [V_GROUPS][ROWS][TILE], with the factors of packed values in them; biases: [V_GROUPS][ROWS], what all elements of a
 * group get. */
static inline void add_values(float16* accumulator, const float* rescale, const float* weights, const float* biases,
                              const __global uchar* v,
                              long stride, uint count, long near, long far, uint chunk, const uint size) {
    float16 sum[ROWS][SLICE];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            sum[r][c] = accumulator[r * V_CHUNKS + chunk + c] * rescale[r];
#if V_BIASED
            sum[r][c] += biases[GROUP_OF_CHUNK(chunk + c) * ROWS + r];
#endif
        }
    for (uint t = 0; t < count; ++t) {
        const __global uchar* row = v + (long)t * stride;
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            PREFETCH_CHUNK(row + chunk * (V_ROW_BYTES / V_CHUNKS), c, V_ROW_BYTES, V_CHUNKS, near, far);
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

#if !V_PACKED
/* The same where some rows see keys that others do not, and values are not all finite: what a row does not see must not
 * reach it, not even as 0 x NaN. seen: [ROWS][TILE], all bits or none. */
static inline void add_seen_values(float16* accumulator, const float* rescale, const float* weights, const int* seen,
                                   const __global uchar* v, long stride, uint count) {
    for (uint r = 0; r < ROWS; ++r)
        for (uint c = 0; c < V_CHUNKS; ++c) accumulator[r * V_CHUNKS + c] *= rescale[r];
    for (uint t = 0; t < count; ++t)
        for (uint c = 0; c < V_CHUNKS; ++c) {
            const int16 x = as_int16(load_value(v + (long)t * stride, c));
            for (uint r = 0; r < ROWS; ++r)
                accumulator[r * V_CHUNKS + c] = fma((float16)(weights[r * TILE + t]),
                                                    as_float16(x & seen[r * TILE + t]), accumulator[r * V_CHUNKS + c]);
        }
}

/* Whether `count` rows of values hold neither infinity nor NaN. */
static inline int values_are_finite(const __global uchar* v, long stride, uint count) {
    int16 special = 0;
    for (uint t = 0; t < count; ++t)
        for (uint c = 0; c < V_CHUNKS; ++c)
            special |= (as_int16(load_value(v + (long)t * stride, c)) & 0x7f800000) == 0x7f800000;
    return !any_lane(special);
}
#endif

/* Of the values in `used`, a bit each, those that are read: where the weight is not below the limit in every row, and
 * single ones between two of these, because a run of its own costs more. Counts for each row the ones that it sees and
 * that are not read. weights, seen: [ROWS][TILE]; seen counts where `hide`. */
static inline uint find_read(uint used, const float16* weights, const float* limits, const int* seen, int hide,
                             uint* skipped) {
    uint read = 0, visible[ROWS];
    for (uint r = 0; r < ROWS; ++r) visible[r] = 0;
    for (uint i = 0; i < TILE_VECTORS; ++i) {
        int16 above = (int16)(0);
        for (uint r = 0; r < ROWS; ++r) {
            const int16 shown = hide ? vload16(r * TILE_VECTORS + i, seen) : (int16)(-1);
            above |= ~(weights[r * TILE_VECTORS + i] < limits[r]) & shown;
            if (hide) visible[r] |= bits_of_lanes(shown) << i * 16;
        }
        read |= bits_of_lanes(above) << i * 16;
    }
    read = (read | read << 1 & read >> 1) & used;
    for (uint r = 0; r < ROWS; ++r) skipped[r] += popcount((hide ? visible[r] : used) & ~read);
    return read;
}

/* Asks for the rows of values that are read, which lie apart, before the first one is needed. */
static inline void prefetch_read(uint read, const __global uchar* v, long stride) {
    for (; read; read &= read - 1)
        for (uint c = 0; c < V_CHUNKS; ++c)
            PREFETCH_CHUNK(v + (long)ctz(read) * stride, c, V_ROW_BYTES, V_CHUNKS, 0, 0);
}

/* What one group does. A function of its own, because PoCL compiles the body of a kernel three times. */
__attribute__((noinline)) static void attend(const sdpa_params* p, const sdpa_memory* memory, uint group_number) {
    sdpa_unit unit;
    sdpa_unit_init(&unit, p, group_number, p->splits);

    float16 q[ROWS * K_CHUNKS];
#if K_BIASED
    float q_sums[ROWS * K_GROUPS];
#else
    const float* q_sums = 0;
#endif
    float16 accumulator[ROWS * V_CHUNKS];
    float16 sum[ROWS]; /* lane by lane: added up at the end */
    uint skipped[ROWS];
    float maximum[16], rescale[16];
    for (uint r = 0; r < ROWS; ++r) {
        const __global uchar* row = q_row(p, memory, &unit, r);
        load_query(row, p->q_type, q + r * K_CHUNKS);
#if K_BIASED
        for (uint g = 0; g < K_GROUPS; ++g) {
            float16 of_group = (float16)(0.0f);
            for (uint c = g * K_GROUP / 16; c < (g + 1) * K_GROUP / 16; ++c) of_group += q[r * K_CHUNKS + c];
            q_sums[r * K_GROUPS + g] = sum_of_lanes(of_group);
        }
#endif
        for (uint c = 0; c < V_CHUNKS; ++c) accumulator[r * V_CHUNKS + c] = (float16)(0.0f);
        sum[r] = (float16)(0.0f);
        skipped[r] = 0;
    }
    for (uint r = 0; r < 16; ++r) maximum[r] = NO_MAXIMUM;

    const __global uchar* k = k_plane(p, memory, &unit);
    const __global uchar* v = v_plane(p, memory, &unit);
    const int has_transform = sdpa_has_transform(p);
    const int scores_of_unseen = p->scores_mode == SDPA_SCORES_RAW || p->scores_mode == SDPA_SCORES_SOFTCAPPED;

    float16 s[ROWS * TILE_VECTORS];
    float16 bias[ROWS * TILE_VECTORS];
    int seen[ROWS * TILE];
    const int sparse = p->v_threshold != 0.0f;
    int read_few = 0; /* values of the last tile */
    for (uint key = unit.key_begin; key < unit.key_end; key += TILE) {
        const uint count = min((uint)TILE, unit.key_end - key);

        /* Classify: does every row see all of the tile, or none any of it? Of a tile cut short, `all` means what
         * there is. */
        int none = (int)key >= unit.any_end || (int)(key + count) <= unit.any_begin;
        int all = (int)key >= unit.all_begin && (int)(key + count) <= unit.all_end;
        if (p->mask_type != TYPE_NONE && (!none || scores_of_unseen)) {
            int16 any_hidden = 0, any_shown = 0;
            for (uint r = 0; r < ROWS; ++r) {
                const __global uchar* row = mask_row(p, memory, &unit, r);
                for (uint i = 0; i < TILE_VECTORS; ++i) {
                    const uint part = part_of_tile(count, i);
                    const float16 x = load16_mask(p, row, key + i * 16, part);
                    const int16 hidden = (x == -INFINITY) & (LANE_INDEX < (int)part);
                    bias[r * TILE_VECTORS + i] = x;
                    any_hidden |= hidden;
                    any_shown |= x != -INFINITY;
                }
            }
            all &= !any_lane(any_hidden);
            none |= !any_lane(any_shown);
        }
        if (none && !scores_of_unseen) {
            if (p->scores_mode != SDPA_SCORES_NONE) sdpa_store_unseen(p, memory, &unit, key, count);
            continue;
        }

        /* Logits. */
        const long near = key + TILE + NEAR <= unit.key_end ? NEAR : 0;
        const long far = key + TILE + FAR <= unit.key_end ? FAR : near;
#if K_PACKED
        const __global uchar* keys = k + (long)key * p->k.stride[2];
        float16 factors[K_GROUPS * TILE_VECTORS];
        STAGE(factors, K_FORMAT, FORMAT_FACTOR_AT_, HEAD_SIZE, K_GROUPS, keys, p->k.stride[2], BITS_OF_TILE(count));
#else
        const float16* factors = 0;
#endif
#if K_BIASED
        float16 key_biases[K_GROUPS * TILE_VECTORS];
        STAGE(key_biases, K_FORMAT, FORMAT_BIAS_AT_, HEAD_SIZE, K_GROUPS, keys, p->k.stride[2], BITS_OF_TILE(count));
        const int is_finite_tile = are_finite(factors, key_biases);
#else
        const float16* key_biases = 0;
        const int is_finite_tile = 1;
#endif
        for (uint i = 0; is_finite_tile && i * 16 < count; ++i)
            dot16(q, q_sums, k, factors + i, key_biases + i, p->k.stride[2], key + i * 16, unit.key_end - 1,
                  near * p->k.stride[2], far * p->k.stride[2], p->scale, s + i, TILE_VECTORS);
#if K_BIASED
        if (!is_finite_tile) dot_elements(q, keys, p->k.stride[2], count, p->scale, (float*)s);
#endif
        int hide = !all || count < TILE;
        uint used = count; /* keys after the last one that a row sees have no weight */
        if (has_transform || hide) {
            int16 hidden = 0, last_seen = 0;
            for (uint r = 0; r < ROWS; ++r)
                for (uint i = 0; i < TILE_VECTORS; ++i) {
                    const uint part = part_of_tile(count, i);
                    int16 visible;
                    s[r * TILE_VECTORS + i] =
                        sdpa_transform(p, memory, &unit, r, key + i * 16, part, s[r * TILE_VECTORS + i],
                                       bias[r * TILE_VECTORS + i], &visible);
                    vstore16(visible, r * TILE_VECTORS + i, seen);
                    hidden |= ~visible & (LANE_INDEX < (int)part);
                    last_seen = max(last_seen, visible & ((int)(i * 16 + 1) + LANE_INDEX));
                }
            all &= !any_lane(hidden);
            hide |= !all;
            used = largest_lane(last_seen);
        }

        /* Softmax over the tile; s becomes the weights. */
        float new_maximum[16];
        vstore16(vload16(0, maximum), 0, new_maximum);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            float16 highest = s[r * TILE_VECTORS];
            for (uint i = 1; i < TILE_VECTORS; ++i) highest = larger(s[r * TILE_VECTORS + i], highest);
            const float other = maximum_of_lanes(larger(highest, (float16)(NO_MAXIMUM)));
            new_maximum[r] = other > maximum[r] ? other : maximum[r];
        }
        vstore16(exp16(vload16(0, maximum) - vload16(0, new_maximum)), 0, rescale);
        vstore16(vload16(0, new_maximum), 0, maximum);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            sum[r] *= rescale[r];
            for (uint i = 0; i < TILE_VECTORS; ++i) {
                float16 weight = exp16(s[r * TILE_VECTORS + i] - maximum[r]);
                if (hide) weight = select((float16)(0.0f), weight, vload16(r * TILE_VECTORS + i, seen));
                s[r * TILE_VECTORS + i] = weight;
                sum[r] += weight;
            }
        }

        /* Under a threshold: a weight below the threshold's share of the sum so far is below that of the whole. */
        uint read = BITS_OF_TILE(used);
        const long v_stride = p->v.stride[2];
        const __global uchar* rows = v + (long)key * v_stride;
        if (sparse) {
            float limits[ROWS];
            for (uint r = 0; r < ROWS; ++r) limits[r] = p->v_threshold * BELOW_ROUNDING * sum_of_lanes(sum[r]);
            read = find_read(read, s, limits, seen, hide, skipped);
            if (read_few) prefetch_read(read, rows, v_stride);
            read_few = popcount(read) * 2 <= TILE;
        }

        /* Values, in runs of keys that are read: one run unless there is a threshold. */
        const long v_near = read_few ? 0 : near * v_stride;
        const long v_far = read_few ? 0 : far * v_stride;
#if V_PACKED
        float16 weights_of_codes[V_GROUPS * ROWS * TILE_VECTORS];
        const float* of_codes = (const float*)weights_of_codes;
        float biases[V_GROUPS * ROWS];
        weigh_codes(weights_of_codes, biases, s, seen, hide, read, rows, v_stride);
#else
        const float* of_codes = (const float*)s;
        const float* biases = 0;
#endif
        do {
            const uint begin = read ? ctz(read) : 0;
            const uint after = ~(read >> begin);
            const uint length = !sparse ? used : after ? ctz(after) : TILE;
            const __global uchar* run = rows + (long)begin * v_stride;
#if V_PACKED
            const int is_finite = 1; /* codes are */
#else
            const int is_finite = all || values_are_finite(run, v_stride, length);
            if (!is_finite)
                add_seen_values(accumulator, rescale, of_codes + begin, seen + begin, run, v_stride, length);
#endif
#if V_CHUNKS <= 16
#pragma unroll
#endif
            for (uint slice = 0; is_finite && slice < V_CHUNKS / SLICE; ++slice)
                add_values(accumulator, rescale, of_codes + begin, biases, run, v_stride, length, v_near, v_far,
                           slice * SLICE, SLICE);
#if V_CHUNKS % SLICE
            if (is_finite)
                add_values(accumulator, rescale, of_codes + begin, biases, run, v_stride, length, v_near, v_far,
                           V_CHUNKS / SLICE * SLICE, V_CHUNKS % SLICE);
#endif
            vstore16((float16)(1.0f), 0, rescale); /* what was done for the first run is done */
#if V_BIASED
            for (uint i = 0; i < V_GROUPS * ROWS; ++i) biases[i] = 0.0f;
#endif
            read &= read + (1u << begin); /* clears the run */
        } while (read);
    }

    float total[ROWS];
    for (uint r = 0; r < ROWS; ++r) total[r] = sum_of_lanes(sum[r]);
    const sdpa_result result = {accumulator, maximum, total, skipped};
    sdpa_leave_result(p, memory, &unit, &result);
}

__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void
sdpa_vector(const sdpa_params p, const __global uchar* q_memory, const __global uchar* k_memory,
            const __global uchar* v_memory, __global uchar* out_memory, const __global uchar* mask_memory,
            const __global uchar* slopes_memory, const __global uchar* alibi_memory, const __global uchar* sinks_memory,
            __global uchar* scores_memory, __global uchar* stats_memory, __global uchar* skipped_memory,
            __global uchar* scratch_memory, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a rehearsal: the launch only makes the driver load the kernel */
    const sdpa_memory memory = {q_memory,     k_memory,   v_memory,      mask_memory,  slopes_memory,  alibi_memory,
                                sinks_memory, out_memory, scores_memory, stats_memory, skipped_memory, scratch_memory};
    attend(&p, &memory, (uint)get_group_id(0) + group_base);
}

#if !SINGLE_LAUNCH
#include "sdpa_combine.h"
#endif
