/* What the packed storage formats share. In a packed format a row has no single elements: it is one run of bytes, laid
 * out as docs/formats.md says, that begins at an even address. Each format F has a header of its own, whose code is
 * compiled only where the program has -DUSES_F, and offers
 *
 *     FORMAT_PACKED_F, FORMAT_ROTATED_F, FORMAT_ROW_SCALED_F   0 or 1
 *     FORMAT_IN_ORDER_F            1: what belongs to an element lies behind all that belongs to earlier groups
 *     FORMAT_ROW_BYTES_F(n)        of n elements
 *     load16_F(row, first, n)      elements first .. first + 15 of n; of a packed row first is a multiple of 16
 *     row_scale_F(row, n)          of a row-scaled format: the factor that load16_F leaves out
 *     store_part_F(row, x, first, size, n, norm)
 *                                  quantizes elements first .. first + size - 1 of n, whole groups, from private
 *                                  chunks; a rotated format takes all n at once, which are R x (rotation.h)
 *
 * and, for who applies factors apart from codes, x = factor * code (+ bias):
 *
 *     FORMAT_BIASED_F              0 or 1
 *     FORMAT_GROUP_F(n)            elements that share a factor and a bias
 *     FORMAT_FACTOR_AT_F(n, group) byte of the row where the group's factor lies, an f16
 *     FORMAT_BIAS_AT_F(n, group)   the same for the bias
 *     codes16_F(row, first, n)     as load16_F, without factor and bias; always finite
 *
 * Nothing outside the row is read. Of the dense formats there are the macros that ask for no group. */

/* How a table is looked up: by a permutation of lanes. A program that has its tables in local memory says so before
 * (local_tables.h). */
#ifndef LOOKUP
#define LOOKUP_PARAMETER
#define LOOKUP_TABLE
#define LOOKUP(table, index) lookup16(table, index)
#define LOOKUP_INTEGERS(first, index) integers16(first, index)
#endif

/* AVX-512 instructions, where the compiler offers them as builtins. */
#if defined(__AVX512F__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_permvarsf512) && __has_builtin(__builtin_ia32_selectps_512) &&                        \
    __has_builtin(__builtin_ia32_selectd_512) && __has_builtin(__builtin_ia32_vcvtph2ps512_mask)
#define HAS_AVX512_BUILTINS
#endif
#endif

/* The same of AVX2, of which a permutation takes 8 entries, by the low 3 bits of an index. */
#if defined(__AVX2__) && !defined(HAS_AVX512_BUILTINS) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_permvarsf256) && __has_builtin(__builtin_ia32_blendvps256)
#define HAS_AVX2_BUILTINS
static inline float8 lookup8(float16 table, int8 index) {
    const float8 low = __builtin_ia32_permvarsf256(table.lo, index),
                 high = __builtin_ia32_permvarsf256(table.hi, index); /* one, where the halves are alike */
    return __builtin_ia32_blendvps256(low, high, as_float8(index << 28));
}
#endif
#endif

/* A lookup in a table of 16, which uses the low 4 bits of each index. */
static inline float16 lookup16(float16 table, int16 index) {
#if defined(HAS_AVX512_BUILTINS)
    return __builtin_ia32_permvarsf512(table, index);
#elif defined(HAS_AVX2_BUILTINS)
    return (float16)(lookup8(table, index.lo), lookup8(table, index.hi));
#else
    const int16 i = index & 15; /* the compiler makes one permutation of this, where there is one */
    return (float16)(table[i.s0], table[i.s1], table[i.s2], table[i.s3], table[i.s4], table[i.s5], table[i.s6],
                     table[i.s7], table[i.s8], table[i.s9], table[i.sa], table[i.sb], table[i.sc], table[i.sd],
                     table[i.se], table[i.sf]);
#endif
}

#define TABLE_OF_INTEGERS(first)                                                                                       \
    ((float16)((first), (first) + 1, (first) + 2, (first) + 3, (first) + 4, (first) + 5, (first) + 6, (first) + 7,     \
               (first) + 8, (first) + 9, (first) + 10, (first) + 11, (first) + 12, (first) + 13, (first) + 14,         \
               (first) + 15))

/* first + index, of which the low 4 bits count. */
static inline float16 integers16(const int first, int16 index) {
#ifdef HAS_AVX512_BUILTINS
    return lookup16(TABLE_OF_INTEGERS(first), index);
#else
    return as_float16(index & 15 | 0x4b000000) + (float)(first - 8388608); /* 2^23 + index, less 2^23 */
#endif
}

#define LANE_BITS                                                                                                      \
    ((int16)(0x1, 0x2, 0x4, 0x8, 0x10, 0x20, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800, 0x1000, 0x2000, 0x4000, 0x8000))

/* x + step in the lanes whose bit is set, x in the others. */
static inline float16 add_where(uint bits, float16 x, float step) {
#ifdef HAS_AVX512_BUILTINS
    return __builtin_ia32_selectps_512((ushort)bits, x + step, x);
#else
    return select(x + step, x, ((int16)((int)bits) & LANE_BITS) == 0);
#endif
}

/* `set` in the lanes whose bit is set, `clear` in the others. */
static inline uint16 choose_where(uint bits, uint set, uint clear) {
#ifdef HAS_AVX512_BUILTINS
    const int16 chosen = __builtin_ia32_selectd_512((ushort)bits, (int16)((int)set), (int16)((int)clear));
    return as_uint16(chosen);
#else
    return select((uint16)(set), (uint16)(clear), ((int16)((int)bits) & LANE_BITS) == 0);
#endif
}

/* Little-endian numbers at an even address. */
static inline uint load_u32(const __global uchar* at) { return as_uint(vload2(0, (const __global ushort*)at)); }
static inline ulong load_u64(const __global uchar* at) { return as_ulong(vload4(0, (const __global ushort*)at)); }

/* A half, in every lane. vload_half is a dozen instructions in some implementations. */
static inline float16 load_half16(const __global uchar* at) {
#ifdef HAS_AVX512_BUILTINS
    return __builtin_ia32_vcvtph2ps512_mask((short16)(*(const __global short*)at), (float16)(0.0f), (ushort)-1, 4);
#else
    return (float16)(vload_half(0, (const __global half*)at));
#endif
}

/* 16 halves, given in 16 bits each, as floats. */
static inline float16 halves_as_floats(ushort16 bits) {
#ifdef HAS_AVX512_BUILTINS
    return __builtin_ia32_vcvtph2ps512_mask(as_short16(bits), (float16)(0.0f), (ushort)-1, 4);
#else
    return vload_half16(0, (const half*)&bits);
#endif
}

/* Lane i is the number shifted right by the i-th amount, of which the low 8 bits count. */
#if defined(__AVX512VBMI__) && defined(__has_builtin)
#if __has_builtin(__builtin_ia32_vpmultishiftqb512)
typedef char char64 __attribute__((ext_vector_type(64)));
#define SHIFT_BYTES(number, amounts)                                                                                   \
    __builtin_astype(__builtin_ia32_vpmultishiftqb512(__builtin_astype((int16)(amounts), char64),                      \
                                                      __builtin_astype((ulong8)(number), char64)),                     \
                     int16)
#endif
#endif

/* 16 codes of 4 bits each: the low, or the high, halves of 16 bytes. Upper bits are for the lookup to ignore. */
static inline int16 low_or_high_nibbles(const __global uchar* at, const uint high) {
    const int16 bytes = convert_int16(as_uchar16(vload8(0, (const __global ushort*)at)));
    return high ? bytes >> 4 : bytes;
}
