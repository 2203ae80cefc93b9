/* Storage formats turbo4, turbo3, turbo2 and, between them, turbo3_5 and turbo2_5: y = R x (rotation.h), each element
 * as the index of a centroid, and one factor S for the row; y is about S * centroid. A row of C = n / 16 chunks:
 *
 *     | chunk 0 | chunk 1 | ... | f16 S |       a chunk of B bits an element: B bytes with the codes of its elements
 *                                               0, 2, .. 14, then B bytes with those of 1, 3, .. 15
 *
 * In turbo3_5 and turbo2_5 the first (C + 1) / 2 chunks have one bit more than the others. The even elements are apart
 * from the odd ones so that one shift of a number of 64 bits, broadcast, brings every code to the low end of its lane:
 * bits above it need no masking, because the tables repeat. */
#define TURBO_CHUNKS_HIGH(n) (((n) / 16 + 1) / 2)
#define TURBO_CHUNKS_LOW(n) ((n) / 16 / 2)
#define TURBO_SCALE_AT(high, low, n) (2 * (high) * TURBO_CHUNKS_HIGH(n) + 2 * (low) * TURBO_CHUNKS_LOW(n))

/* Centroids of the Lloyd-Max quantizer of a normal distribution of variance 1. */
#define TURBO_CENTROIDS_2                                                                                              \
    ((float16)(-1.510418f, -0.452780f, 0.452780f, 1.510418f, -1.510418f, -0.452780f, 0.452780f, 1.510418f, -1.510418f, \
               -0.452780f, 0.452780f, 1.510418f, -1.510418f, -0.452780f, 0.452780f, 1.510418f))
#define TURBO_CENTROIDS_3                                                                                              \
    ((float16)(-2.151946f, -1.343909f, -0.756005f, -0.245094f, 0.245094f, 0.756005f, 1.343909f, 2.151946f, -2.151946f, \
               -1.343909f, -0.756005f, -0.245094f, 0.245094f, 0.756005f, 1.343909f, 2.151946f))
#define TURBO_CENTROIDS_4                                                                                              \
    ((float16)(-2.732590f, -2.069017f, -1.618046f, -1.256231f, -0.942340f, -0.656759f, -0.388048f, -0.128395f,         \
               0.128395f, 0.388048f, 0.656759f, 0.942340f, 1.256231f, 1.618046f, 2.069017f, 2.732590f))

/* 16 centroids from a chunk of codes. */
static inline float16 turbo_load_2(const __global uchar* chunk) {
    const uint16 codes =
        (uint16)(load_u32(chunk)) >> (uint16)(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    return lookup16(TURBO_CENTROIDS_2, as_int16(codes));
}

static inline float16 turbo_load_3(const __global uchar* chunk) {
#ifdef SHIFT_BYTES /* of the 8 bytes read, 2 lie after the chunk: of the next one, or S */
    const int16 codes =
        SHIFT_BYTES(load_u64(chunk), 0, 24, 3, 27, 6, 30, 9, 33, 12, 36, 15, 39, 18, 42, 21, 45);
#else
    const uint16 words = choose_where(0xaaaau, load_u32(chunk + 2), load_u32(chunk));
    const int16 codes = as_int16(words >> (uint16)(0, 8, 3, 11, 6, 14, 9, 17, 12, 20, 15, 23, 18, 26, 21, 29));
#endif
    return lookup16(TURBO_CENTROIDS_3, codes);
}

static inline float16 turbo_load_4(const __global uchar* chunk) {
    const uint16 codes = as_uint16((ulong8)(load_u64(chunk))) >>
                         (uint16)(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    return lookup16(TURBO_CENTROIDS_4, as_int16(codes));
}

#define TURBO_FORMAT(format, high, low)                                                                                \
    static inline float16 load16_##format(const __global uchar* row, uint first, const uint n) {                       \
        const uint chunk = first / 16;                                                                                 \
        if (high == low || chunk < TURBO_CHUNKS_HIGH(n)) return turbo_load_##high(row + 2 * high * chunk);             \
        return turbo_load_##low(row + 2 * low * chunk + 2 * (high - low) * TURBO_CHUNKS_HIGH(n));                      \
    }                                                                                                                  \
    static inline float row_scale_##format(const __global uchar* row, const uint n) {                                  \
        return load_half16(row + TURBO_SCALE_AT(high, low, n)).s0;                                                     \
    }

#define FORMAT_PACKED_turbo4 1
#define FORMAT_ROTATED_turbo4 1
#define FORMAT_ROW_SCALED_turbo4 1
#define FORMAT_ROW_BYTES_turbo4(n) (TURBO_SCALE_AT(4, 4, n) + 2)
#ifdef USES_turbo4
TURBO_FORMAT(turbo4, 4, 4)
#endif

#define FORMAT_PACKED_turbo3 1
#define FORMAT_ROTATED_turbo3 1
#define FORMAT_ROW_SCALED_turbo3 1
#define FORMAT_ROW_BYTES_turbo3(n) (TURBO_SCALE_AT(3, 3, n) + 2)
#ifdef USES_turbo3
TURBO_FORMAT(turbo3, 3, 3)
#endif

#define FORMAT_PACKED_turbo2 1
#define FORMAT_ROTATED_turbo2 1
#define FORMAT_ROW_SCALED_turbo2 1
#define FORMAT_ROW_BYTES_turbo2(n) (TURBO_SCALE_AT(2, 2, n) + 2)
#ifdef USES_turbo2
TURBO_FORMAT(turbo2, 2, 2)
#endif

#define FORMAT_PACKED_turbo3_5 1
#define FORMAT_ROTATED_turbo3_5 1
#define FORMAT_ROW_SCALED_turbo3_5 1
#define FORMAT_ROW_BYTES_turbo3_5(n) (TURBO_SCALE_AT(4, 3, n) + 2)
#ifdef USES_turbo3_5
TURBO_FORMAT(turbo3_5, 4, 3)
#endif

#define FORMAT_PACKED_turbo2_5 1
#define FORMAT_ROTATED_turbo2_5 1
#define FORMAT_ROW_SCALED_turbo2_5 1
#define FORMAT_ROW_BYTES_turbo2_5(n) (TURBO_SCALE_AT(3, 2, n) + 2)
#ifdef USES_turbo2_5
TURBO_FORMAT(turbo2_5, 3, 2)
#endif
