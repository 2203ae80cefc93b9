/* Storage format q4_0: ggml's blocks of 32, {f16 d; uint8 codes[16]}, 18 bytes. Byte j holds the codes of
 * elements j (low half) and 16 + j; x = d * (code - 8). */
#define FORMAT_PACKED_q4_0 1
#define FORMAT_ROTATED_q4_0 0
#define FORMAT_IN_ORDER_q4_0 1
#define FORMAT_ROW_SCALED_q4_0 0
#define FORMAT_BIASED_q4_0 0
#define FORMAT_GROUP_q4_0(n) 32
#define FORMAT_FACTOR_AT_q4_0(n, group) ((group)*18)
#define FORMAT_ROW_BYTES_q4_0(n) ((n) / 32 * 18)

#ifdef USES_q4_0
static inline float16 codes16_q4_0(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 18;
    return LOOKUP_INTEGERS(-8, low_or_high_nibbles(block + 2, first & 16));
}

static inline float16 load16_q4_0(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 18;
    return lookup16(load_half16(block) * TABLE_OF_INTEGERS(-8), low_or_high_nibbles(block + 2, first & 16));
}

static inline void store_block_q4_0(__global uchar* block, float16 a, float16 b) {
    const block_codes codes = codes_around_0(a, b, 8);
    store_half(block, codes.d);
    store_nibbles(block + 2, codes.low, codes.high);
}

static inline void store_part_q4_0(__global uchar* row, const float16* x, uint first, uint size, const uint n,
                                   const uint norm) {
    __global uchar* blocks = row + first / 32 * 18;
    for (uint i = 0; i < size / 32; ++i) store_block_q4_0(blocks + i * 18, x[2 * i], x[2 * i + 1]);
}
#endif
