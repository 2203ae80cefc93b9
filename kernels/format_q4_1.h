/* Storage format q4_1: ggml's blocks of 32, {f16 d, m; uint8 codes[16]}, 20 bytes. Byte j holds the codes of
 * elements j (low half) and 16 + j; x = d * code + m. */
#define FORMAT_PACKED_q4_1 1
#define FORMAT_ROTATED_q4_1 0
#define FORMAT_IN_ORDER_q4_1 1
#define FORMAT_ROW_SCALED_q4_1 0
#define FORMAT_BIASED_q4_1 1
#define FORMAT_GROUP_q4_1(n) 32
#define FORMAT_FACTOR_AT_q4_1(n, group) ((group)*20)
#define FORMAT_BIAS_AT_q4_1(n, group) ((group)*20 + 2)
#define FORMAT_ROW_BYTES_q4_1(n) ((n) / 32 * 20)

#ifdef USES_q4_1
static inline float16 codes16_q4_1(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 20;
    return LOOKUP_INTEGERS(0, low_or_high_nibbles(block + 4, first & 16));
}

static inline float16 load16_q4_1(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 20;
    const float16 values = fma(load_half16(block), TABLE_OF_INTEGERS(0), load_half16(block + 2));
    return lookup16(values, low_or_high_nibbles(block + 4, first & 16));
}

static inline void store_block_q4_1(__global uchar* block, float16 a, float16 b) {
    const block_codes codes = codes_from_lowest(a, b, 15);
    store_half(block, codes.d);
    store_half(block + 2, codes.m);
    store_nibbles(block + 4, codes.low, codes.high);
}

static inline void store_part_q4_1(__global uchar* row, const float16* x, uint first, uint size, const uint n,
                                   const uint norm) {
    __global uchar* blocks = row + first / 32 * 20;
    for (uint i = 0; i < size / 32; ++i) store_block_q4_1(blocks + i * 20, x[2 * i], x[2 * i + 1]);
}
#endif
