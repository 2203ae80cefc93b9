/* How sdpa_vector takes rows of one segment whose factors and biases are apart from their codes: a tile's are collected
 * first, because one conversion of 16 halves takes less than 16 of one. For a dense segment the same functions load
 * elements, and do nothing else. Needs before it: sdpa_segment_rows.h, sdpa_tile.h, opencl_1_2.h, TILE up to 32 and
 * SEGMENT. */
#pragma winnow repeatable

#define GROUP_OF_CHUNK(chunk) ((chunk)*16 / V_GROUP)

/* The factors and biases of a tile's keys. */
typedef struct key_factors {
    float16 factors[K_GROUPS * TILE_VECTORS]; /* [K_GROUPS][TILE] */
    float16 biases[K_GROUPS * TILE_VECTORS];
} key_factors;

/* What a tile's values are multiplied with, and what is added to all elements of a group. */
typedef struct value_weights {
    float16 of_codes[V_GROUPS * ROWS * TILE_VECTORS]; /* [V_GROUPS][ROWS][TILE] */
    float biases[V_GROUPS * ROWS];                    /* [V_GROUPS][ROWS] */
} value_weights;

#if K_PACKED || V_PACKED
#define HALVES_OF_A_TILE ((K_GROUPS > V_GROUPS ? K_GROUPS : V_GROUPS) * TILE)

#if defined(HAS_AVX512_BUILTINS)
#if __has_builtin(__builtin_ia32_gathersiv16si)
#define GATHERS
#endif
#endif

/* The factors, or biases, of a tile's packed rows as floats: numbers [groups][TILE]. The first one of a row lies at
 * byte `at`, the others `step` bytes apart. Of `read` keys; others are not touched, and have 0. */
static inline void stage_halves(float16* numbers, const uint groups, const __global uchar* rows, long stride,
                                key_set read, const uint at, const uint step) {
#ifdef GATHERS
    if (read == BITS_OF_TILE(TILE) && stride < 1 << 26) {
        const int16 offsets = LANE_INDEX * (int)stride;
        for (uint i = 0; i < TILE_VECTORS; ++i)
#pragma unroll
            for (uint g = 0; g < groups; ++g) {
                /* Four bytes each, of which the row's beginning has the first two, other places the last two. */
                const uint place = at + g * step;
                const __global uchar* first = rows + (long)(i * 16) * stride + (place ? place - 2 : 0);
                const int16 words =
                    __builtin_ia32_gathersiv16si((int16)(0), (const void*)(ulong)first, offsets, (ushort)-1, 1);
                numbers[g * TILE_VECTORS + i] =
                    halves_as_floats(convert_ushort16(as_uint16(place ? words >> 16 : words) & 0xffff));
            }
        return;
    }
#endif
    /* Whole vectors, so that they are loaded as such. */
    ushort16 vectors[HALVES_OF_A_TILE / 16];
    ushort* bits = (ushort*)vectors;
    if (read == BITS_OF_TILE(TILE)) {
#pragma unroll 1
        for (uint t = 0; t < TILE; ++t)
#pragma unroll
            for (uint g = 0; g < groups; ++g)
                bits[g * TILE + t] = *(const __global ushort*)(rows + (long)t * stride + at + g * step);
    } else {
        for (uint i = 0; i < groups * TILE_VECTORS; ++i) vectors[i] = (ushort16)(0);
        for (uint left = read; left; left &= left - 1) {
            const uint t = trailing_zeros(left);
#pragma unroll
            for (uint g = 0; g < groups; ++g)
                bits[g * TILE + t] = *(const __global ushort*)(rows + (long)t * stride + at + g * step);
        }
    }
    for (uint i = 0; i < groups * TILE_VECTORS; ++i) numbers[i] = halves_as_floats(vectors[i]);
}

/* Stages the factors of rows of n elements (what: FORMAT_FACTOR_AT_), or their biases (FORMAT_BIAS_AT_). */
#define STAGE(numbers, format, what, n, groups, rows, stride, read)                                                    \
    stage_halves(numbers, groups, rows, stride, read, JOIN(what, format)(n, 0),                                        \
                 JOIN(what, format)(n, 1) - JOIN(what, format)(n, 0))
#endif

/* ---- Keys ---- */

static inline void stage_key_factors(key_factors* of_keys, const __global uchar* keys, long stride, key_set read) {
#if K_PACKED
    STAGE(of_keys->factors, K_FORMAT, FORMAT_FACTOR_AT_, HEAD_SIZE, K_GROUPS, keys, stride, read);
#endif
#if K_BIASED
    STAGE(of_keys->biases, K_FORMAT, FORMAT_BIAS_AT_, HEAD_SIZE, K_GROUPS, keys, stride, read);
#endif
}

/* Whether inner products may be made of codes, factors and biases apart: an infinite bias would give another infinity
 * than its elements do, or hide a NaN. */
static inline int factors_are_finite(const key_factors* of_keys) {
    if (!K_BIASED) return 1;
    int16 special = 0;
    for (uint i = 0; i < K_GROUPS * TILE_VECTORS; ++i)
        special |= lanes_not_finite(of_keys->factors[i]) | lanes_not_finite(of_keys->biases[i]);
    return !any_lane(special);
}

/* A chunk of the tile's key `key`: of a packed one the codes, times their factors, unless all of a row share one. */
static inline float16 load_scaled_codes(const __global uchar* row, uint chunk, const key_factors* of_keys, uint key) {
#if !K_PACKED
    return load_key(row, chunk);
#elif K_GROUP == HEAD_SIZE
    return JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE);
#else
    return JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE) *
           ((const float*)of_keys->factors)[chunk * 16 / K_GROUP * TILE + key];
#endif
}

/* Makes of the sums of q x load_scaled_codes, of 16 keys in the tile's vector i, those of q x key. q_sums: [K_GROUPS],
 * the sums of q's elements. */
static inline float16 finish_dot(float16 dot, const float* q_sums, const key_factors* of_keys, uint i) {
#if K_PACKED && K_GROUP == HEAD_SIZE
    dot *= of_keys->factors[i];
#endif
    if (K_BIASED)
        for (uint g = 0; g < K_GROUPS; ++g) dot = fma(of_keys->biases[g * TILE_VECTORS + i], (float16)(q_sums[g]), dot);
    return dot;
}

/* ---- Values ---- */

/* A chunk of a value; of a packed one the codes. */
static inline float16 load_value_codes(const __global uchar* row, uint chunk) {
#if V_PACKED
    return JOIN(codes16_, V_FORMAT)(row, chunk * 16, V_HEAD_SIZE);
#else
    return load_value(row, chunk);
#endif
}

/* Makes of the weights of a tile's values those of their codes in each group, and the sums of weight x bias. A row gets
 * nothing of what it does not see, whatever the factor. Returns [V_GROUPS][ROWS][TILE]: of dense values the weights as
 * they are, [ROWS][TILE]. */
static inline const float* weigh_codes(value_weights* result, const float16* weights, const sdpa_seen* seen,
                                       key_set read, const __global uchar* v, long stride) {
#if !V_PACKED
    return (const float*)weights;
#else
    float16 factors[V_GROUPS * TILE_VECTORS];
    STAGE(factors, V_FORMAT, FORMAT_FACTOR_AT_, V_HEAD_SIZE, V_GROUPS, v, stride, read);
#if V_BIASED
    float16 numbers[V_GROUPS * TILE_VECTORS];
    STAGE(numbers, V_FORMAT, FORMAT_BIAS_AT_, V_HEAD_SIZE, V_GROUPS, v, stride, read);
#endif
    for (uint g = 0; g < V_GROUPS; ++g) {
#pragma unroll
        for (uint r = 0; r < ROWS; ++r)
#pragma unroll
            for (uint i = 0; i < TILE_VECTORS; ++i) {
                float16 weight = weights[r * TILE_VECTORS + i] * factors[g * TILE_VECTORS + i];
                if (seen->is_partial)
                    weight = select((float16)(0.0f), weight, vload16(r * TILE_VECTORS + i, seen->lanes));
                result->of_codes[(g * ROWS + r) * TILE_VECTORS + i] = weight;
            }
#if V_BIASED
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            float16 sum = (float16)(0.0f);
#pragma unroll
            for (uint i = 0; i < TILE_VECTORS; ++i) {
                float16 part = weights[r * TILE_VECTORS + i] * numbers[g * TILE_VECTORS + i];
                if (seen->is_partial) part = select((float16)(0.0f), part, vload16(r * TILE_VECTORS + i, seen->lanes));
                sum += part;
            }
            result->biases[g * ROWS + r] = sum_of_lanes(sum);
        }
#endif
    }
    return (const float*)result->of_codes;
#endif
}
