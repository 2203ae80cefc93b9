/* Factors and biases of a tile's packed rows, and keys of a tile as bits. Needs before it: sdpa_chunks.h, TILE (up to
 * 32) and TILE_VECTORS. */

/* Groups of a packed row whose elements share a factor; a dense row counts as one. */
#define K_GROUPS (HEAD_SIZE / K_GROUP)
#define V_GROUPS (V_HEAD_SIZE / V_GROUP)

/* All, or the first `count`, keys of a tile as bits. */
#define BITS_OF_TILE(count) ((count) == 32 ? 0xffffffffu : (1u << (count)) - 1)

static inline uint bits_of_lanes(int16 all_or_none) {
    const int16 x = all_or_none & LANE_BITS;
    const int8 x8 = x.lo | x.hi;
    const int4 x4 = x8.lo | x8.hi;
    return (uint)(x4.x | x4.y | x4.z | x4.w);
}

/* The factors, or biases, of a tile's packed rows as floats: numbers [groups][TILE]. The first one of a row lies at
 * byte `at`, the others `step` bytes apart. Of `read` keys, a bit each; others are not touched, and have 0. Bits are
 * collected first, because one conversion of 16 takes less than 16 of one. */
#define HALVES_OF_A_TILE ((K_GROUPS > V_GROUPS ? K_GROUPS : V_GROUPS) * TILE)
static inline void stage_halves(float* numbers, const uint groups, const __global uchar* rows, long stride, uint read,
                                const uint at, const uint step) {
    ushort bits[HALVES_OF_A_TILE];
    if (read == BITS_OF_TILE(TILE)) {
#pragma unroll 1
        for (uint t = 0; t < TILE; ++t)
#pragma unroll
            for (uint g = 0; g < groups; ++g)
                bits[g * TILE + t] = *(const __global ushort*)(rows + (long)t * stride + at + g * step);
    } else {
        for (uint i = 0; i < groups * TILE_VECTORS; ++i) vstore16((ushort16)(0), i, bits);
        for (uint left = read; left; left &= left - 1) {
            const uint t = ctz(left);
#pragma unroll
            for (uint g = 0; g < groups; ++g)
                bits[g * TILE + t] = *(const __global ushort*)(rows + (long)t * stride + at + g * step);
        }
    }
    for (uint i = 0; i < groups * TILE_VECTORS; ++i) {
#ifdef HAS_AVX512_BUILTINS
        const float16 x = __builtin_ia32_vcvtph2ps512_mask(vload16(i, (const short*)bits), (float16)(0.0f),
                                                           (ushort)-1, 4);
#else
        const float16 x = vload_half16(i, (const half*)bits);
#endif
        vstore16(x, i, numbers);
    }
}

#define STAGE(numbers, format, what, n, groups, rows, stride, read)                                                    \
    stage_halves(numbers, groups, rows, stride, read, JOIN(what, format)(n, 0),                                        \
                 JOIN(what, format)(n, 1) - JOIN(what, format)(n, 0))
