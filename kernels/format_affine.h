/* Storage formats affine8_gG and affine4_gG, G = 32, 64 or 128: groups of G elements with a scale and a bias each; the
 * numbers are those of mx.quantize. A row of n elements of B bits:
 *
 *     | n * B / 8 bytes of codes | n / G f16 scales | n / G f16 biases |        x = scale * code + bias
 *
 * The code of element i lies at bit i * B of the codes, taken as one little-endian number. */
#define AFFINE_ROW_BYTES(bits, group, n) ((n) / 8 * (bits) + (n) / (group)*4)
#define AFFINE_SCALE_AT(bits, n, i) ((n) / 8 * (bits) + (i)*2)
#define AFFINE_BIAS_AT(bits, group, n, i) ((n) / 8 * (bits) + ((n) / (group) + (i)) * 2)

/* The codes of elements first .. first + 15; of 4 bits as integers, whose upper bits are for a lookup to ignore. */
static inline float16 affine_codes_8(const __global uchar* codes, uint first) {
    return convert_float16(convert_int16(as_uchar16(vload8(0, (const __global ushort*)(codes + first)))));
}

static inline int16 affine_indices_4(const __global uchar* codes, uint first) {
    const __global uchar* at = codes + first / 2;
#ifdef SHIFT_BYTES
    return SHIFT_BYTES(load_u64(at), (int16)(0, 4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60));
#else
    const uint16 words = choose_where(0xff00u, load_u32(at + 4), load_u32(at));
    return as_int16(words >> (uint16)(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28));
#endif
}

static inline float16 affine_codes_4(const __global uchar* codes, uint first) {
    return LOOKUP_INTEGERS(0, affine_indices_4(codes, first));
}

static inline float16 affine_load_8(const __global uchar* codes, uint first, float16 scale, float16 bias) {
    return fma(scale, affine_codes_8(codes, first), bias);
}

static inline float16 affine_load_4(const __global uchar* codes, uint first, float16 scale, float16 bias) {
    return lookup16(fma(scale, TABLE_OF_INTEGERS(0), bias), affine_indices_4(codes, first));
}

static inline void affine_store_8(__global uchar* codes, uint first, int16 code) {
    vstore16(convert_uchar16(code), 0, codes + first);
}

static inline void affine_store_4(__global uchar* codes, uint first, int16 code) {
    vstore8(convert_uchar8(code.even | code.odd << 4), 0, codes + first / 2);
}

/* What mx.quantize finds for a group: a scale of either sign, so that the end of the range that is farther from 0 is
 * met exactly. Codes are made with these numbers before they are rounded to f16. NaN where the group holds infinity
 * or NaN. */
static inline float2 affine_scale_and_bias(const float16* x, const uint chunks, const uint most) {
#pragma OPENCL FP_CONTRACT OFF
    int16 lowest = ordered(x[0]), highest = lowest;
    for (uint c = 1; c < chunks; ++c) {
        lowest = min(lowest, ordered(x[c]));
        highest = max(highest, ordered(x[c]));
    }
    const int low_order = smallest_of_lanes(lowest), high_order = largest_of_lanes(highest);
    if (low_order < LEAST_FINITE || high_order > GREATEST_FINITE) return (float2)(NAN);
    const float low = from_ordered(low_order), high = from_ordered(high_order);
    const int low_is_farther = fabs(low) > fabs(high);
    const float step = fmax((high - low) / (float)most, 1e-7f);
    const float scale = low_is_farther ? step : -step;
    const float edge = low_is_farther ? low : high;
    const float code_of_0 = rint(edge / scale);
    return code_of_0 == 0.0f ? (float2)(scale, 0.0f) : (float2)(edge / code_of_0, edge);
}

/* The nearest codes, ties to even: adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
static inline int16 affine_quantize(float16 x, float2 scale_and_bias, const uint most) {
#pragma OPENCL FP_CONTRACT OFF
    const float16 code = (x - scale_and_bias.y) / scale_and_bias.x;
    const float16 positive = select((float16)(0.0f), code, code > 0.0f); /* of NaN 0 */
    const float16 bounded = select((float16)((float)most), positive, positive < (float)most);
    return as_int16(bounded + 12582912.0f) - 0x4b400000;
}

#define AFFINE_FORMAT(format, bits, group)                                                                             \
    static inline float16 codes16_##format(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {     \
        return affine_codes_##bits(row, first);                                                                        \
    }                                                                                                                  \
    static inline float16 load16_##format(const __global uchar* row, uint first, const uint n) {                       \
        const __global uchar* scales = row + n / 8 * bits;                                                             \
        const float16 scale = load_half16(scales + first / group * 2);                                                 \
        const float16 bias = load_half16(scales + n / group * 2 + first / group * 2);                                  \
        return affine_load_##bits(row, first, scale, bias);                                                            \
    }                                                                                                                  \
    static inline void store_part_##format(__global uchar* row, const float16* x, uint first, uint size, const uint n, \
                                           const uint norm) {                                                          \
        __global uchar* scales = row + n / 8 * bits + first / group * 2;                                               \
        for (uint g = 0; g < size / group; ++g) {                                                                      \
            const float2 numbers = affine_scale_and_bias(x + g * (group / 16), group / 16, (1 << bits) - 1);           \
            store_half(scales + g * 2, numbers.x);                                                                     \
            store_half(scales + n / group * 2 + g * 2, numbers.y);                                                     \
            for (uint c = g * (group / 16); c < (g + 1) * (group / 16); ++c)                                           \
                affine_store_##bits(row, first + c * 16, affine_quantize(x[c], numbers, (1 << bits) - 1));             \
        }                                                                                                              \
    }

#define FORMAT_PACKED_affine8_g32 1
#define FORMAT_ROTATED_affine8_g32 0
#define FORMAT_IN_ORDER_affine8_g32 0
#define FORMAT_ROW_SCALED_affine8_g32 0
#define FORMAT_BIASED_affine8_g32 1
#define FORMAT_GROUP_affine8_g32(n) 32
#define FORMAT_FACTOR_AT_affine8_g32(n, group) AFFINE_SCALE_AT(8, n, group)
#define FORMAT_BIAS_AT_affine8_g32(n, group) AFFINE_BIAS_AT(8, 32, n, group)
#define FORMAT_ROW_BYTES_affine8_g32(n) AFFINE_ROW_BYTES(8, 32, n)
#ifdef USES_affine8_g32
AFFINE_FORMAT(affine8_g32, 8, 32)
#endif

#define FORMAT_PACKED_affine8_g64 1
#define FORMAT_ROTATED_affine8_g64 0
#define FORMAT_IN_ORDER_affine8_g64 0
#define FORMAT_ROW_SCALED_affine8_g64 0
#define FORMAT_BIASED_affine8_g64 1
#define FORMAT_GROUP_affine8_g64(n) 64
#define FORMAT_FACTOR_AT_affine8_g64(n, group) AFFINE_SCALE_AT(8, n, group)
#define FORMAT_BIAS_AT_affine8_g64(n, group) AFFINE_BIAS_AT(8, 64, n, group)
#define FORMAT_ROW_BYTES_affine8_g64(n) AFFINE_ROW_BYTES(8, 64, n)
#ifdef USES_affine8_g64
AFFINE_FORMAT(affine8_g64, 8, 64)
#endif

#define FORMAT_PACKED_affine8_g128 1
#define FORMAT_ROTATED_affine8_g128 0
#define FORMAT_IN_ORDER_affine8_g128 0
#define FORMAT_ROW_SCALED_affine8_g128 0
#define FORMAT_BIASED_affine8_g128 1
#define FORMAT_GROUP_affine8_g128(n) 128
#define FORMAT_FACTOR_AT_affine8_g128(n, group) AFFINE_SCALE_AT(8, n, group)
#define FORMAT_BIAS_AT_affine8_g128(n, group) AFFINE_BIAS_AT(8, 128, n, group)
#define FORMAT_ROW_BYTES_affine8_g128(n) AFFINE_ROW_BYTES(8, 128, n)
#ifdef USES_affine8_g128
AFFINE_FORMAT(affine8_g128, 8, 128)
#endif

#define FORMAT_PACKED_affine4_g32 1
#define FORMAT_ROTATED_affine4_g32 0
#define FORMAT_IN_ORDER_affine4_g32 0
#define FORMAT_ROW_SCALED_affine4_g32 0
#define FORMAT_BIASED_affine4_g32 1
#define FORMAT_GROUP_affine4_g32(n) 32
#define FORMAT_FACTOR_AT_affine4_g32(n, group) AFFINE_SCALE_AT(4, n, group)
#define FORMAT_BIAS_AT_affine4_g32(n, group) AFFINE_BIAS_AT(4, 32, n, group)
#define FORMAT_ROW_BYTES_affine4_g32(n) AFFINE_ROW_BYTES(4, 32, n)
#ifdef USES_affine4_g32
AFFINE_FORMAT(affine4_g32, 4, 32)
#endif

#define FORMAT_PACKED_affine4_g64 1
#define FORMAT_ROTATED_affine4_g64 0
#define FORMAT_IN_ORDER_affine4_g64 0
#define FORMAT_ROW_SCALED_affine4_g64 0
#define FORMAT_BIASED_affine4_g64 1
#define FORMAT_GROUP_affine4_g64(n) 64
#define FORMAT_FACTOR_AT_affine4_g64(n, group) AFFINE_SCALE_AT(4, n, group)
#define FORMAT_BIAS_AT_affine4_g64(n, group) AFFINE_BIAS_AT(4, 64, n, group)
#define FORMAT_ROW_BYTES_affine4_g64(n) AFFINE_ROW_BYTES(4, 64, n)
#ifdef USES_affine4_g64
AFFINE_FORMAT(affine4_g64, 4, 64)
#endif

#define FORMAT_PACKED_affine4_g128 1
#define FORMAT_ROTATED_affine4_g128 0
#define FORMAT_IN_ORDER_affine4_g128 0
#define FORMAT_ROW_SCALED_affine4_g128 0
#define FORMAT_BIASED_affine4_g128 1
#define FORMAT_GROUP_affine4_g128(n) 128
#define FORMAT_FACTOR_AT_affine4_g128(n, group) AFFINE_SCALE_AT(4, n, group)
#define FORMAT_BIAS_AT_affine4_g128(n, group) AFFINE_BIAS_AT(4, 128, n, group)
#define FORMAT_ROW_BYTES_affine4_g128(n) AFFINE_ROW_BYTES(4, 128, n)
#ifdef USES_affine4_g128
AFFINE_FORMAT(affine4_g128, 4, 128)
#endif
