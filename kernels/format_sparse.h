/* Storage formats sparse16 and sparse8: blocks of 32 elements, of which the KEPT of the largest magnitude are there:
 *
 *     {uint kept; f16 d; values[KEPT]}         sparse16: 21 halves, 48 bytes; sparse8: 22 int8, 28 bytes
 *
 * Bit i of kept says that element i is there; x = d * value, and 0 of the others. The values of elements 0 to 15 lie
 * from the front on, one after the other, those of 16 to 31 from the end back: so that 16 values from the front, and 16
 * from the end, have all that their half needs, whatever kept says. */
#define SPARSE_VALUES 6 /* bytes before them */

#define FORMAT_PACKED_sparse16 1
#define FORMAT_ROTATED_sparse16 0
#define FORMAT_IN_ORDER_sparse16 1
#define FORMAT_ROW_SCALED_sparse16 0
#define FORMAT_BIASED_sparse16 0
#define FORMAT_GROUP_sparse16(n) 32
#define FORMAT_FACTOR_AT_sparse16(n, group) ((group)*48 + 4)
#define FORMAT_ROW_BYTES_sparse16(n) ((n) / 32 * 48)

#define FORMAT_PACKED_sparse8 1
#define FORMAT_ROTATED_sparse8 0
#define FORMAT_IN_ORDER_sparse8 1
#define FORMAT_ROW_SCALED_sparse8 0
#define FORMAT_BIASED_sparse8 0
#define FORMAT_GROUP_sparse8(n) 32
#define FORMAT_FACTOR_AT_sparse8(n, group) ((group)*28 + 4)
#define FORMAT_ROW_BYTES_sparse8(n) ((n) / 32 * 28)

#if defined(USES_sparse16) || defined(USES_sparse8)

/* 16 elements of a half of a block: of values that lie in the order of its elements, those that `kept` has a bit for
 * take the next one each. */
#ifdef LOOKUP_FLOATS
/* Many work-items: a lane's vectors are registers that no index reaches, so each element is loaded where it lies. */
#define SPARSE_ELEMENT(i) (half_kept >> (i)&1u ? SPARSE_VALUE(popcount(half_kept & ((1u << (i)) - 1u))) : 0.0f)
#define SPARSE_ELEMENTS                                                                                                \
    ((float16)(SPARSE_ELEMENT(0), SPARSE_ELEMENT(1), SPARSE_ELEMENT(2), SPARSE_ELEMENT(3), SPARSE_ELEMENT(4),          \
               SPARSE_ELEMENT(5), SPARSE_ELEMENT(6), SPARSE_ELEMENT(7), SPARSE_ELEMENT(8), SPARSE_ELEMENT(9),          \
               SPARSE_ELEMENT(10), SPARSE_ELEMENT(11), SPARSE_ELEMENT(12), SPARSE_ELEMENT(13), SPARSE_ELEMENT(14),     \
               SPARSE_ELEMENT(15)))
#else
#if defined(HAS_AVX512_BUILTINS)
#if __has_builtin(__builtin_ia32_expandsf512_mask)
#define HAS_EXPAND
#endif
#if defined(__AVX512DQ__) && __has_builtin(__builtin_ia32_rangeps512_mask)
/* With the sign of x; of a NaN the other one. */
#define SMALLER_MAGNITUDE(x, y) __builtin_ia32_rangeps512_mask(x, y, 2, x, (ushort)-1, 4)
#endif
#endif

#ifndef HAS_EXPAND
/* In byte i how many of the bits below i are set. */
static inline ulong counts_below(uint bits) {
    const ulong each = (ulong)bits * 0x0101010101010101UL & 0x8040201008040201UL; /* byte i has bit i, or 0 */
    return ((each + 0x7f7f7f7f7f7f7f7fUL) >> 7 & 0x0101010101010101UL) * 0x0101010101010100UL;
}
#endif

static inline float16 spread_values(float16 values, uint half_kept) {
#ifdef HAS_EXPAND
    return __builtin_ia32_expandsf512_mask(values, (float16)(0.0f), (ushort)half_kept);
#else
    const ulong low = counts_below(half_kept & 255u);
    const ulong high = counts_below(half_kept >> 8) + popcount(half_kept & 255u) * 0x0101010101010101UL;
    const int16 places = convert_int16(as_uchar16((ulong2)(low, high)));
    return select((float16)(0.0f), lookup16(values, places), ((int16)((int)half_kept) & LANE_BITS) != 0);
#endif
}
#endif

/* Which `count` of 32 elements have the largest magnitudes; of equal ones those that come first. None is infinite or
 * NaN. */
static inline uint largest_elements(float16 a, float16 b, const int count) {
    const int16 of_a = as_int16(fabs(a)), of_b = as_int16(fabs(b));
    const int16 lane = (int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    int magnitudes[32];
    vstore16(of_a, 0, magnitudes);
    vstore16(of_b, 1, magnitudes);
    int16 before_a = (int16)(0), before_b = (int16)(0); /* how many go before, negative */
    for (int i = 0; i < 32; ++i) { /* an equal one goes before those behind it: a comparison that holds is -1 */
        before_a += (int16)(magnitudes[i]) - (lane > (int16)(i)) > of_a;
        before_b += (int16)(magnitudes[i]) - (lane + 16 > (int16)(i)) > of_b;
    }
    const uint16 kept = as_uint16(select((int16)(0), LANE_BITS, before_a > (int16)(-count))) |
                        as_uint16(select((int16)(0), LANE_BITS, before_b > (int16)(-count))) << 16;
    return union_of_lanes(kept);
}

static inline void store_kept(__global uchar* block, uint kept) {
    vstore2(as_ushort2(kept), 0, (__global ushort*)block);
}

/* Where a block's values go: calls store(place, i) for each element i that is kept. */
#define STORE_VALUES(kept, count, store)                                                                               \
    {                                                                                                                  \
        uint front = 0, end = (count);                                                                                 \
        for (uint i = 0; i < 16; ++i)                                                                                  \
            if ((kept) >> i & 1u) store(front++, i);                                                                   \
        for (uint i = 16; i < 32; ++i)                                                                                 \
            if ((kept) >> i & 1u) store(--end, i);                                                                     \
    }

/* What format_packed.h asks for beside codes16_F, of blocks of so many bytes. */
#define SPARSE_ROWS(format, bytes)                                                                                     \
    static inline float16 load16_##format(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {      \
        return load_half16(row + first / 32 * bytes + 4) * codes16_##format(row, first, n LOOKUP_TABLE);               \
    }                                                                                                                  \
    static inline void store_part_##format(__global uchar* row, const float16* x, uint first, uint size, const uint n, \
                                           const uint norm) {                                                          \
        __global uchar* blocks = row + first / 32 * bytes;                                                             \
        for (uint i = 0; i < size / 32; ++i) store_block_##format(blocks + i * bytes, x[2 * i], x[2 * i + 1]);         \
    }
#endif

#ifdef USES_sparse16
/* Codes are finite, whatever the bytes are: a row that is hidden, or whose slot was never written, has a weight of 0.
 */
#define LARGEST_HALF 65504.0f
#ifdef LOOKUP_FLOATS
static inline float as_finite(float x) { return copysign(fmin(fabs(x), LARGEST_HALF), x); }
#else
static inline float16 as_finite(float16 x) {
#ifdef SMALLER_MAGNITUDE
    return SMALLER_MAGNITUDE(x, (float16)(LARGEST_HALF));
#else
    return copysign(fmin(fabs(x), (float16)(LARGEST_HALF)), x);
#endif
}
#endif

static inline float16 codes16_sparse16(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 48;
    const uint half_kept = load_u32(block) >> first % 32 & 0xffffu;
    const __global half* values = (const __global half*)(block + SPARSE_VALUES);
#ifdef LOOKUP_FLOATS
#define SPARSE_VALUE(at) as_finite(vload_half(first % 32 ? 20u - (at) : (at), values))
    return SPARSE_ELEMENTS;
#undef SPARSE_VALUE
#else
    const float16 found = as_finite(LOAD16_F16(values + (first % 32 ? 5 : 0)));
    return spread_values(first % 32 ? found.sfedcba9876543210 : found, half_kept);
#endif
}

static inline void store_block_sparse16(__global uchar* block, float16 a, float16 b) {
    const int is_finite = block_magnitude(a, b) < 65520.0f; /* what a half does not round to infinity */
    const uint kept = is_finite ? largest_elements(a, b, 21) : 0x1fffffu;
    float x[32];
    vstore16(is_finite ? a : (float16)(0.0f), 0, x);
    vstore16(is_finite ? b : (float16)(0.0f), 1, x);
    store_kept(block, kept);
    store_half(block + 4, is_finite ? 1.0f : NAN);
    __global half* values = (__global half*)(block + SPARSE_VALUES);
#define store_value(at, i) vstore_half_rte(x[i], at, values)
    STORE_VALUES(kept, 21u, store_value)
#undef store_value
}

SPARSE_ROWS(sparse16, 48)
#endif

#ifdef USES_sparse8
static inline float16 codes16_sparse8(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 28;
    const uint half_kept = load_u32(block) >> first % 32 & 0xffffu;
    const __global uchar* values = block + SPARSE_VALUES;
#ifdef LOOKUP_FLOATS
#define SPARSE_VALUE(at) ((float)((const __global char*)values)[first % 32 ? 21u - (at) : (at)])
    return SPARSE_ELEMENTS;
#undef SPARSE_VALUE
#else
    const ushort8 pairs = vload8(0, (const __global ushort*)(values + (first % 32 ? 6 : 0)));
    const int16 found = convert_int16(as_char16(pairs));
    return spread_values(convert_float16(first % 32 ? found.sfedcba9876543210 : found), half_kept);
#endif
}

/* d and codes are those of q8_0, whose lines these are: a function for both takes a quarter more of q8_0's registers on
 * an MI200 (tests/kernel_resources). */
static inline void store_block_sparse8(__global uchar* block, float16 a, float16 b) {
#pragma OPENCL FP_CONTRACT OFF
    const float magnitude = block_magnitude(a, b);
    const int is_finite = isfinite(magnitude);
    const float d = magnitude / 127.0f;
    const float inverse = is_finite ? inverse_or_0(d) : 0.0f;
    const uint kept = is_finite ? largest_elements(a, b, 22) : 0x3fffffu;
    int codes[32];
    vstore16(is_finite ? round_away(a * inverse) : (int16)(0), 0, codes);
    vstore16(is_finite ? round_away(b * inverse) : (int16)(0), 1, codes);
    store_kept(block, kept);
    store_half(block + 4, is_finite ? d : NAN);
    __global char* values = (__global char*)block + SPARSE_VALUES;
#define store_value(at, i) values[at] = (char)codes[i]
    STORE_VALUES(kept, 22u, store_value)
#undef store_value
}

SPARSE_ROWS(sparse8, 28)
#endif
