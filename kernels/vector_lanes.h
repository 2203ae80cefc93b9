/* The lanes of vectors of 16: which one each is, and what holds in any of them. A lane that holds is -1, all bits set,
 * as comparisons have it. Needs before it: the formats. */

#if defined(HAS_AVX512_BUILTINS) && defined(__AVX512DQ__)
#if __has_builtin(__builtin_ia32_cvtd2mask512)
#define HAS_BITS_OF_LANES
#endif
#endif

#define LANE_INDEX ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))

/* Bit i of the result is that of lane i, which is all bits or none. */
static inline uint bits_of_lanes(int16 all_or_none) {
#ifdef HAS_BITS_OF_LANES
    return (ushort)__builtin_ia32_cvtd2mask512(all_or_none);
#else
    const int16 x = all_or_none & LANE_BITS;
    const int8 x8 = x.lo | x.hi;
    const int4 x4 = x8.lo | x8.hi;
    return (uint)(x4.x | x4.y | x4.z | x4.w);
#endif
}

/* The other way round. */
static inline int16 lanes_of_bits(uint bits) { return ((int16)((int)bits) & LANE_BITS) != 0; }

static inline int any_lane(int16 all_or_none) {
#ifdef HAS_BITS_OF_LANES
    return bits_of_lanes(all_or_none) != 0;
#else
    const int8 x8 = all_or_none.lo | all_or_none.hi;
    const int4 x4 = x8.lo | x8.hi;
    return (x4.x | x4.y | x4.z | x4.w) != 0;
#endif
}

/* Infinity and NaN. */
static inline int16 lanes_not_finite(float16 x) { return (as_int16(x) & 0x7f800000) == 0x7f800000; }
