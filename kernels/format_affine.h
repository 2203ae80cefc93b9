/* Storage formats affine8_gG and affine4_gG, G = 32, 64 or 128: groups of G elements with a scale and a bias each; the
 * numbers are those of mx.quantize. A row of n elements of B bits:
 *
 *     | n * B / 8 bytes of codes | n / G f16 scales | n / G f16 biases |        x = scale * code + bias
 *
 * The code of element i lies at bit i * B of the codes, taken as one little-endian number. */
#define AFFINE_ROW_BYTES(bits, group, n) ((n) * (bits) / 8 + (n) / (group) * 4)

/* Elements first .. first + 15 of a group's scale and bias. */
static inline float16 affine_load_8(const __global uchar* codes, uint first, float16 scale, float16 bias) {
    return fma(scale, convert_float16(convert_int16(vload16(0, codes + first))), bias);
}

static inline float16 affine_load_4(const __global uchar* codes, uint first, float16 scale, float16 bias) {
    const __global uchar* at = codes + first / 2;
#ifdef SHIFT_BYTES
    const int16 code = SHIFT_BYTES(load_u64(at), 0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60);
#else
    const uint16 words = choose_where(0xff00u, load_u32(at + 4), load_u32(at));
    const int16 code = as_int16(words >> (uint16)(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28));
#endif
    return lookup16(fma(scale, TABLE_OF_INTEGERS(0), bias), code);
}

#define AFFINE_FORMAT(format, bits, group)                                                                             \
    static inline float16 load16_##format(const __global uchar* row, uint first, const uint n) {                       \
        const __global uchar* scales = row + n * bits / 8;                                                             \
        const float16 scale = load_half16(scales + first / group * 2);                                                 \
        const float16 bias = load_half16(scales + n / group * 2 + first / group * 2);                                  \
        return affine_load_##bits(row, first, scale, bias);                                                            \
    }

#define FORMAT_PACKED_affine8_g32 1
#define FORMAT_ROTATED_affine8_g32 0
#define FORMAT_ROW_SCALED_affine8_g32 0
#define FORMAT_ROW_BYTES_affine8_g32(n) AFFINE_ROW_BYTES(8, 32, n)
#ifdef USES_affine8_g32
AFFINE_FORMAT(affine8_g32, 8, 32)
#endif

#define FORMAT_PACKED_affine8_g64 1
#define FORMAT_ROTATED_affine8_g64 0
#define FORMAT_ROW_SCALED_affine8_g64 0
#define FORMAT_ROW_BYTES_affine8_g64(n) AFFINE_ROW_BYTES(8, 64, n)
#ifdef USES_affine8_g64
AFFINE_FORMAT(affine8_g64, 8, 64)
#endif

#define FORMAT_PACKED_affine8_g128 1
#define FORMAT_ROTATED_affine8_g128 0
#define FORMAT_ROW_SCALED_affine8_g128 0
#define FORMAT_ROW_BYTES_affine8_g128(n) AFFINE_ROW_BYTES(8, 128, n)
#ifdef USES_affine8_g128
AFFINE_FORMAT(affine8_g128, 8, 128)
#endif

#define FORMAT_PACKED_affine4_g32 1
#define FORMAT_ROTATED_affine4_g32 0
#define FORMAT_ROW_SCALED_affine4_g32 0
#define FORMAT_ROW_BYTES_affine4_g32(n) AFFINE_ROW_BYTES(4, 32, n)
#ifdef USES_affine4_g32
AFFINE_FORMAT(affine4_g32, 4, 32)
#endif

#define FORMAT_PACKED_affine4_g64 1
#define FORMAT_ROTATED_affine4_g64 0
#define FORMAT_ROW_SCALED_affine4_g64 0
#define FORMAT_ROW_BYTES_affine4_g64(n) AFFINE_ROW_BYTES(4, 64, n)
#ifdef USES_affine4_g64
AFFINE_FORMAT(affine4_g64, 4, 64)
#endif

#define FORMAT_PACKED_affine4_g128 1
#define FORMAT_ROTATED_affine4_g128 0
#define FORMAT_ROW_SCALED_affine4_g128 0
#define FORMAT_ROW_BYTES_affine4_g128(n) AFFINE_ROW_BYTES(4, 128, n)
#ifdef USES_affine4_g128
AFFINE_FORMAT(affine4_g128, 4, 128)
#endif
