/* Storage format q4_0: ggml's blocks of 32, {f16 d; uint8 codes[16]}, 18 bytes. Byte j holds the codes of
 * elements j (low half) and 16 + j; x = d * (code - 8). */
#define FORMAT_PACKED_q4_0 1
#define FORMAT_ROTATED_q4_0 0
#define FORMAT_ROW_SCALED_q4_0 0
#define FORMAT_ROW_BYTES_q4_0(n) ((n) / 32 * 18)

#ifdef USES_q4_0
static inline float16 load16_q4_0(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 18;
    return lookup16(load_half16(block) * TABLE_OF_INTEGERS(-8), low_or_high_nibbles(block + 2, first & 16));
}
#endif
