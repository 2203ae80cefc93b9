/* Factors and biases of a tile's packed rows, of one segment. Needs before it: sdpa_tile.h, sdpa_segments.h and STORE.
 */
#pragma winnow repeatable

/* The factors, or biases, of a tile's packed rows as floats: numbers [groups][TILE]. The first one of a row lies at
 * byte `at`, the others `step` bytes apart. Of `read` keys, a bit each; others are not touched, and have 0. Bits are
 * collected first, because one conversion of 16 takes less than 16 of one. */
static inline void stage_halves(float16* numbers, const uint groups, const __global uchar* rows, long stride, uint read,
                                const uint at, const uint step) {
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

#if K_BIASED
/* Whether no factor and no bias of a tile's keys is infinite or NaN. */
static inline int are_finite(const float16* factors, const float16* biases) {
    int16 special = 0;
    for (uint i = 0; i < K_GROUPS * TILE_VECTORS; ++i)
        special |=
            ((as_int16(factors[i]) & 0x7f800000) == 0x7f800000) | ((as_int16(biases[i]) & 0x7f800000) == 0x7f800000);
    return !any_lane(special);
}

/* Inner products of all rows with `count` keys, element by element: where these are infinite, sums of codes and sums of
 * q would give another infinity than theirs, or hide a NaN. s: [ROWS][TILE]. */
static inline void dot_elements(const float16* q, const __global uchar* keys, long stride, uint count, float scale,
                                float* s) {
#pragma unroll 1
    for (uint t = 0; t < count; ++t)
#pragma unroll 1
        for (uint r = 0; r < ROWS; ++r) {
            float16 sum = (float16)(0.0f);
#pragma unroll 1
            for (uint chunk = 0; chunk < K_CHUNKS; ++chunk)
                sum = fma(load_key(keys + (long)t * stride, chunk), q[r * K_CHUNKS + chunk], sum);
            s[r * TILE + t] = sum_of_lanes(sum) * scale;
        }
}
#endif

#if V_PACKED
/* Makes of the weights, [ROWS][TILE], those of the values' codes in each group, [V_GROUPS][ROWS][TILE], and the sums of
 * weight x bias, [V_GROUPS][ROWS]. A row gets nothing of what it does not see, whatever the factor. seen: [ROWS][TILE],
 * counts where `hide`. */
static inline void weigh_codes(float16* of_codes, float* biases, const float16* weights, const int* seen, int hide,
                               uint read, const __global uchar* v, long stride) {
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
                if (hide) weight = select((float16)(0.0f), weight, vload16(r * TILE_VECTORS + i, seen));
                of_codes[(g * ROWS + r) * TILE_VECTORS + i] = weight;
            }
#if V_BIASED
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            float16 sum = (float16)(0.0f);
#pragma unroll
            for (uint i = 0; i < TILE_VECTORS; ++i) {
                float16 part = weights[r * TILE_VECTORS + i] * numbers[g * TILE_VECTORS + i];
                if (hide) part = select((float16)(0.0f), part, vload16(r * TILE_VECTORS + i, seen));
                sum += part;
            }
            biases[g * ROWS + r] = sum_of_lanes(sum);
        }
#endif
    }
}
#endif
