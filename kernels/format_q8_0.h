/* Storage format q8_0: ggml's blocks of 32, {f16 d; int8 codes[32]}, 34 bytes; x = d * code. */
#define FORMAT_PACKED_q8_0 1
#define FORMAT_ROTATED_q8_0 0
#define FORMAT_ROW_SCALED_q8_0 0
#define FORMAT_ROW_BYTES_q8_0(n) ((n) / 32 * 34)

#ifdef USES_q8_0
static inline float16 load16_q8_0(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 34;
    const char16 codes = vload16(0, (const __global char*)block + 2 + first % 32);
    return load_half16(block) * convert_float16(convert_int16(codes));
}
#endif
