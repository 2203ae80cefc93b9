/* Storage format q4_1: ggml's blocks of 32, {f16 d, m; uint8 codes[16]}, 20 bytes. Byte j holds the codes of
 * elements j (low half) and 16 + j; x = d * code + m. */
#define FORMAT_PACKED_q4_1 1
#define FORMAT_ROTATED_q4_1 0
#define FORMAT_ROW_SCALED_q4_1 0
#define FORMAT_ROW_BYTES_q4_1(n) ((n) / 32 * 20)

#ifdef USES_q4_1
static inline float16 load16_q4_1(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 20;
    const float16 values = fma(load_half16(block), TABLE_OF_INTEGERS(0), load_half16(block + 2));
    return lookup16(values, low_or_high_nibbles(block + 4, first & 16));
}
#endif
