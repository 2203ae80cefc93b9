/* Storage format q8_0: ggml's blocks of 32, {f16 d; int8 codes[32]}, 34 bytes; x = d * code. */
#define FORMAT_PACKED_q8_0 1
#define FORMAT_ROTATED_q8_0 0
#define FORMAT_IN_ORDER_q8_0 1
#define FORMAT_ROW_SCALED_q8_0 0
#define FORMAT_BIASED_q8_0 0
#define FORMAT_GROUP_q8_0(n) 32
#define FORMAT_FACTOR_AT_q8_0(n, group) ((group)*34)
#define FORMAT_ROW_BYTES_q8_0(n) ((n) / 32 * 34)

#ifdef USES_q8_0
static inline float16 codes16_q8_0(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    const __global uchar* block = row + first / 32 * 34;
    /* By twos, as they lie: some compilers take single bytes one by one. */
    const ushort8 pairs = vload8(0, (const __global ushort*)(block + 2 + first % 32));
    return convert_float16(convert_int16(as_char16(pairs)));
}

static inline float16 load16_q8_0(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {
    return load_half16(row + first / 32 * 34) * codes16_q8_0(row, first, n LOOKUP_TABLE);
}

static inline void store_block_q8_0(__global uchar* block, float16 a, float16 b) {
#pragma OPENCL FP_CONTRACT OFF
    const float magnitude = block_magnitude(a, b);
    const int is_finite = isfinite(magnitude);
    const float d = magnitude / 127.0f;
    const float inverse = is_finite ? inverse_or_0(d) : 0.0f;
    const int16 low = is_finite ? round_away(a * inverse) : (int16)(0);
    const int16 high = is_finite ? round_away(b * inverse) : (int16)(0);
    store_half(block, is_finite ? d : NAN);
    vstore16(convert_char16(low), 0, (__global char*)block + 2);
    vstore16(convert_char16(high), 1, (__global char*)block + 2);
}

static inline void store_part_q8_0(__global uchar* row, const float16* x, uint first, uint size, const uint n,
                                   const uint norm) {
    __global uchar* blocks = row + first / 32 * 34;
    for (uint i = 0; i < size / 32; ++i) store_block_q8_0(blocks + i * 34, x[2 * i], x[2 * i + 1]);
}
#endif
