/* Rows as bytes, for integer_dot.h: of a format F whose rows share a factor
 *
 *     byte_codes_F(row, first, n)  the codes of elements first .. first + 63 of n, a byte each, unsigned
 *     byte_element_F(i)            which of the 64 elements byte i belongs to
 *     FORMAT_BYTE_ZERO_F           the byte that stands for 0
 *     FORMAT_BYTE_STEP_F           what a byte more adds to the code of codes16_F
 *
 * Needs before it: the formats. */

#if defined(__AVX512BW__) && defined(HAS_AVX512_BUILTINS)
#if __has_builtin(__builtin_ia32_pshufb512)
#define HAS_BYTE_LOOKUP
typedef char bytes64 __attribute__((ext_vector_type(64)));
#endif
#endif

/* 64 codes of 4 bits: of each byte first the low half, then the high one. */
static inline uint16 bytes_of_nibbles(const __global uchar* at) {
    uint16 x = convert_uint16(vload16(0, (const __global ushort*)at));
    x = (x | x << 8) & 0x00ff00ffu;
    return (x | x << 4) & 0x0f0f0f0fu;
}

/* table[index] of a table of 16 bytes, for each byte of `indices`, which are below 16. */
static inline uint16 lookup_bytes(uint4 table, uint16 indices) {
#ifdef HAS_BYTE_LOOKUP
    return __builtin_astype(__builtin_ia32_pshufb512(__builtin_astype((uint16)(table, table, table, table), bytes64),
                                                     __builtin_astype(indices, bytes64)),
                            uint16);
#else
    const uchar16 bytes = as_uchar16(table);
    const float16 numbers = convert_float16(bytes);
    uint16 result = (uint16)(0);
    for (uint shift = 0; shift < 32; shift += 8)
        result |= convert_uint16(lookup16(numbers, as_int16(indices >> shift))) << shift;
    return result;
#endif
}

#define AFFINE_BYTES(format, bits)                                                                                     \
    static inline uint16 byte_codes_##format(const __global uchar* row, uint first, const uint n) {                    \
        return affine_bytes_##bits(row, first);                                                                        \
    }                                                                                                                  \
    static inline uint byte_element_##format(uint i) { return i; }

static inline uint16 affine_bytes_8(const __global uchar* codes, uint first) {
    const __global ushort* pairs = (const __global ushort*)(codes + first);
    return (uint16)(as_uint8(vload16(0, pairs)), as_uint8(vload16(1, pairs)));
}
static inline uint16 affine_bytes_4(const __global uchar* codes, uint first) {
    return bytes_of_nibbles(codes + first / 2);
}

#define FORMAT_BYTE_ZERO_affine8_g64 0
#define FORMAT_BYTE_STEP_affine8_g64 1.0f
#ifdef USES_affine8_g64
AFFINE_BYTES(affine8_g64, 8)
#endif

#define FORMAT_BYTE_ZERO_affine8_g128 0
#define FORMAT_BYTE_STEP_affine8_g128 1.0f
#ifdef USES_affine8_g128
AFFINE_BYTES(affine8_g128, 8)
#endif

#define FORMAT_BYTE_ZERO_affine4_g64 0
#define FORMAT_BYTE_STEP_affine4_g64 1.0f
#ifdef USES_affine4_g64
AFFINE_BYTES(affine4_g64, 4)
#endif

#define FORMAT_BYTE_ZERO_affine4_g128 0
#define FORMAT_BYTE_STEP_affine4_g128 1.0f
#ifdef USES_affine4_g128
AFFINE_BYTES(affine4_g128, 4)
#endif

/* Centroids as whole multiples of the 127th part of the largest. */
#define FORMAT_BYTE_ZERO_turbo4 128
#define FORMAT_BYTE_STEP_turbo4 0.021516457f
#ifdef USES_turbo4
#define TURBO_BYTES_4 as_uint4((uchar16)(1, 32, 53, 70, 84, 97, 110, 122, 134, 146, 159, 172, 186, 203, 224, 255))
static inline uint16 byte_codes_turbo4(const __global uchar* row, uint first, const uint n) {
    return lookup_bytes(TURBO_BYTES_4, bytes_of_nibbles(row + first / 2));
}
static inline uint byte_element_turbo4(uint i) {
    const uint in_chunk = i / 2 % 8;
    return i / 16 * 16 + in_chunk % 4 * 4 + in_chunk / 4 + i % 2 * 2;
}
#endif
