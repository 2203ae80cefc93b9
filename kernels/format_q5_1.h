/* Storage format q5_1: ggml's blocks of 32, {f16 d, m; uint8 high[4]; uint8 low[16]}, 24 bytes. Byte j of low
 * holds the lower 4 bits of the codes of elements j (low half) and 16 + j, bit j of high the fifth bit of element j;
 * x = d * code + m. */
#define FORMAT_PACKED_q5_1 1
#define FORMAT_ROTATED_q5_1 0
#define FORMAT_IN_ORDER_q5_1 1
#define FORMAT_ROW_SCALED_q5_1 0
#define FORMAT_BIASED_q5_1 1
#define FORMAT_GROUP_q5_1(n) 32
#define FORMAT_FACTOR_AT_q5_1(n, group) ((group)*24)
#define FORMAT_BIAS_AT_q5_1(n, group) ((group)*24 + 2)
#define FORMAT_ROW_BYTES_q5_1(n) ((n) / 32 * 24)

#ifdef USES_q5_1
static inline float16 codes16_q5_1(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 24;
    const float16 low = LOOKUP_INTEGERS(0, low_or_high_nibbles(block + 8, first & 16));
    return add_where(load_u32(block + 4) >> (first & 16), low, 16.0f);
}

static inline float16 load16_q5_1(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 24;
    return fma(load_half16(block), codes16_q5_1(row, first, n LOOKUP_TABLE), load_half16(block + 2));
}

static inline void store_block_q5_1(__global uchar* block, float16 a, float16 b) {
    const block_codes codes = codes_from_lowest(a, b, 31);
    store_half(block, codes.d);
    store_half(block + 2, codes.m);
    store_fifth_bits(block + 4, codes.low, codes.high);
    store_nibbles(block + 8, codes.low, codes.high);
}

static inline void store_part_q5_1(__global uchar* row, const float16* x, uint first, uint size, const uint n,
                                   const uint norm) {
    __global uchar* blocks = row + first / 32 * 24;
    for (uint i = 0; i < size / 32; ++i) store_block_q5_1(blocks + i * 24, x[2 * i], x[2 * i + 1]);
}
#endif
