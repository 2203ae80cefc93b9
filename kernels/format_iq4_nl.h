/* Storage format iq4_nl: ggml's blocks of 32, {f16 d; uint8 codes[16]}, 18 bytes. Byte j holds the codes of
 * elements j (low half) and 16 + j; x = d * IQ4_NL_VALUES[code]. */
#define FORMAT_PACKED_iq4_nl 1
#define FORMAT_ROTATED_iq4_nl 0
#define FORMAT_ROW_SCALED_iq4_nl 0
#define FORMAT_ROW_BYTES_iq4_nl(n) ((n) / 32 * 18)

#ifdef USES_iq4_nl
#define IQ4_NL_VALUES ((float16)(-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113))

static inline float16 load16_iq4_nl(const __global uchar* row, uint first, const uint n) {
    const __global uchar* block = row + first / 32 * 18;
    return lookup16(load_half16(block) * IQ4_NL_VALUES, low_or_high_nibbles(block + 2, first & 16));
}
#endif
