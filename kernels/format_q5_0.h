/* Storage format q5_0: ggml's blocks of 32, {f16 d; uint8 high[4]; uint8 low[16]}, 22 bytes. Byte j of low
 * holds the lower 4 bits of the codes of elements j (low half) and 16 + j, bit j of high the fifth bit of element j;
 * x = d * (code - 16). */
#define FORMAT_PACKED_q5_0 1
#define FORMAT_ROTATED_q5_0 0
#define FORMAT_IN_ORDER_q5_0 1
#define FORMAT_ROW_SCALED_q5_0 0
#define FORMAT_BIASED_q5_0 0
#define FORMAT_GROUP_q5_0(n) 32
#define FORMAT_FACTOR_AT_q5_0(n, group) ((group)*22)
#define FORMAT_ROW_BYTES_q5_0(n) ((n) / 32 * 22)

#ifdef USES_q5_0
static inline float16 codes16_q5_0(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 22;
    const float16 low = LOOKUP_INTEGERS(-16, low_or_high_nibbles(block + 6, first & 16));
    return add_where(load_u32(block + 2) >> (first & 16), low, 16.0f);
}

static inline float16 load16_q5_0(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    return load_half16(row + first / 32 * 22) * codes16_q5_0(row, first, n LOOKUP_TABLE);
}

static inline void store_block_q5_0(__global uchar* block, float16 a, float16 b) {
    const block_codes codes = codes_around_0(a, b, 16);
    store_half(block, codes.d);
    store_fifth_bits(block + 2, codes.low, codes.high);
    store_nibbles(block + 6, codes.low, codes.high);
}

static inline void store_part_q5_0(__global uchar* row, const float16* x, uint first, uint size, const uint n,
                                   const uint norm) {
    __global uchar* blocks = row + first / 32 * 22;
    for (uint i = 0; i < size / 32; ++i) store_block_q5_0(blocks + i * 22, x[2 * i], x[2 * i + 1]);
}
#endif
