/* Storage format iq4_nl: ggml's blocks of 32, {f16 d; uint8 codes[16]}, 18 bytes. Byte j holds the codes of
 * elements j (low half) and 16 + j; x = d * IQ4_NL_VALUES[code]. */
#define FORMAT_PACKED_iq4_nl 1
#define FORMAT_ROTATED_iq4_nl 0
#define FORMAT_IN_ORDER_iq4_nl 1
#define FORMAT_ROW_SCALED_iq4_nl 0
#define FORMAT_BIASED_iq4_nl 0
#define FORMAT_GROUP_iq4_nl(n) 32
#define FORMAT_FACTOR_AT_iq4_nl(n, group) ((group)*18)
#define FORMAT_ROW_BYTES_iq4_nl(n) ((n) / 32 * 18)

#ifdef USES_iq4_nl
#define IQ4_NL_VALUES ((float16)(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))

static inline float16 codes16_iq4_nl(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 18;
    return LOOKUP(IQ4_NL_VALUES, low_or_high_nibbles(block + 2, first & 16));
}

static inline float16 load16_iq4_nl(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 18;
    return lookup16(load_half16(block) * IQ4_NL_VALUES, low_or_high_nibbles(block + 2, first & 16));
}

/* The index of the value nearest to x, of two the upper one: by halves among the numbers half way between values. */
static inline int16 iq4_nl_nearest(float16 x) {
    const float16 halfway = (float16)(-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f, 7.0f, 19.0f,
                                      31.5f, 45.5f, 61.0f, 79.0f, 101.0f, INFINITY);
    int16 code = (x >= -4.5f) & 8;
#pragma unroll
    for (int step = 4; step > 0; step /= 2) code += (x >= lookup16(halfway, code + (step - 1))) & step;
    return code;
}

/* Stores the codes of a block; its d is the sum of products by the sum of squares. The largest element becomes the
 * largest value; then d is fitted to the codes by least squares, weighted by x^2. */
static inline void store_codes_iq4_nl(__global uchar* block, float16 a, float16 b, float16* products,
                                      float16* squares) {
#pragma OPENCL FP_CONTRACT OFF
    const float magnitude = block_magnitude(a, b);
    if (!isfinite(magnitude) || magnitude < 1e-15f) {
        const int is_finite = isfinite(magnitude); /* d = 0, or NaN */
        products[0] = products[1] = (float16)(is_finite ? 0.0f : NAN);
        squares[0] = squares[1] = (float16)(1.0f);
        vstore16((uchar16)(is_finite ? 0x88 : 0), 0, block + 2);
        return;
    }
    const float inverse = 1.0f / (first_of_magnitude(a, b, magnitude) / -127.0f);
    const int16 low = iq4_nl_nearest(inverse * a), high = iq4_nl_nearest(inverse * b);
    const float16 values_a = lookup16(IQ4_NL_VALUES, low), values_b = lookup16(IQ4_NL_VALUES, high);
    products[0] = a * a * values_a * a;
    products[1] = b * b * values_b * b;
    squares[0] = a * a * values_a * values_a;
    squares[1] = b * b * values_b * values_b;
    store_nibbles(block + 2, low, high);
}

/* The sums go from a block's first element to its last, because rounding depends on it; so those of 4 blocks go side
 * by side. */
static inline void store_part_iq4_nl(__global uchar* row, const float16* x, uint first, uint size, const uint n,
                                     const uint norm) {
#pragma OPENCL FP_CONTRACT OFF
    __global uchar* blocks = row + first / 32 * 18;
    for (uint next = 0; next < size / 32; next += 4) {
        float16 products[4][2], squares[4][2];
        const uint count = min(size / 32 - next, 4u);
        for (uint i = 0; i < count; ++i)
            store_codes_iq4_nl(blocks + (next + i) * 18, x[2 * (next + i)], x[2 * (next + i) + 1], products[i],
                               squares[i]);
        const float* p = (const float*)products;
        const float* s = (const float*)squares;
        float4 sum_of_products = (float4)(0.0f), sum_of_squares = (float4)(0.0f);
#pragma unroll 8
        for (uint j = 0; j < 32; ++j) {
            sum_of_products += (float4)(p[j], p[32 + j], p[64 + j], p[96 + j]);
            sum_of_squares += (float4)(s[j], s[32 + j], s[64 + j], s[96 + j]);
        }
        float d[4];
        vstore4(select((float4)(0.0f), sum_of_products / sum_of_squares, sum_of_squares > 0.0f), 0, d);
        for (uint i = 0; i < count; ++i) store_half(blocks + (next + i) * 18, d[i]);
    }
}
#endif
