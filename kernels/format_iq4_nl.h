/* Storage format iq4_nl: ggml's blocks of 32, {f16 d; uint8 codes[16]}, 18 bytes. Byte j holds the codes of
 * elements j (low half) and 16 + j; x = d * IQ4_NL_VALUES[code]. */
#define FORMAT_PACKED_iq4_nl 1
#define FORMAT_ROTATED_iq4_nl 0
#define FORMAT_ROW_SCALED_iq4_nl 0
#define FORMAT_BIASED_iq4_nl 0
#define FORMAT_GROUP_iq4_nl(n) 32
#define FORMAT_FACTOR_AT_iq4_nl(n, group) ((group) * 18)
#define FORMAT_ROW_BYTES_iq4_nl(n) ((n) / 32 * 18)

#ifdef USES_iq4_nl
#define IQ4_NL_VALUES ((float16)(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))

static inline float16 codes16_iq4_nl(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 18;
    return lookup16(IQ4_NL_VALUES, low_or_high_nibbles(block + 2, first & 16));
}

static inline float16 load16_iq4_nl(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 18;
    return lookup16(load_half16(block) * IQ4_NL_VALUES, low_or_high_nibbles(block + 2, first & 16));
}

/* The index of the value nearest to x, of two the upper one. */
static inline int16 iq4_nl_nearest(float16 x) {
    int16 code = (int16)(0);
    const float halfway[15] = {-115.5f, -93.5f, -74.0f, -57.0f, -42.0f, -28.5f, -16.0f, -4.5f,
                               7.0f,    19.0f,  31.5f,  45.5f,  61.0f,  79.0f,  101.0f};
#pragma unroll
    for (uint i = 0; i < 15; ++i) code -= x >= halfway[i];
    return code;
}

static inline void store_block_iq4_nl(__global uchar* block, float16 a, float16 b) {
#pragma OPENCL FP_CONTRACT OFF
    const float magnitude = block_magnitude(a, b);
    if (!isfinite(magnitude) || magnitude < 1e-15f) {
        store_half(block, magnitude < 1e-15f ? 0.0f : NAN);
        vstore16((uchar16)(magnitude < 1e-15f ? 0x88 : 0), 0, block + 2);
        return;
    }
    /* The largest element becomes the largest value; then d is fitted to the codes by least squares, weighted by
     * x^2. The sums go from the first element to the last, because rounding depends on it. */
    const float inverse = 1.0f / (first_of_magnitude(a, b, magnitude) / -127.0f);
    const int16 low = iq4_nl_nearest(inverse * a), high = iq4_nl_nearest(inverse * b);
    float products[2][16], squares[2][16];
    const float16 values_a = lookup16(IQ4_NL_VALUES, low), values_b = lookup16(IQ4_NL_VALUES, high);
    vstore16(a * a * values_a * a, 0, products[0]);
    vstore16(b * b * values_b * b, 0, products[1]);
    vstore16(a * a * values_a * values_a, 0, squares[0]);
    vstore16(b * b * values_b * values_b, 0, squares[1]);
    float sum_of_products = 0.0f, sum_of_squares = 0.0f;
    for (uint i = 0; i < 32; ++i) {
        sum_of_products += products[i / 16][i % 16];
        sum_of_squares += squares[i / 16][i % 16];
    }
    store_half(block, sum_of_squares > 0.0f ? sum_of_products / sum_of_squares : 0.0f);
    store_nibbles(block + 2, low, high);
}

static inline void store_row_iq4_nl(__global uchar* row, const float16* x, const uint n, const uint norm) {
    for (uint i = 0; i < n / 32; ++i) store_block_iq4_nl(row + i * 18, x[2 * i], x[2 * i + 1]);
}
#endif
