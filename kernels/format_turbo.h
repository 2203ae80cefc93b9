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
#define TURBO_SCALE_AT(high, low, n) (2 * (high)*TURBO_CHUNKS_HIGH(n) + 2 * (low)*TURBO_CHUNKS_LOW(n))

/* The numbers of WINNOW_NORM_*. */
#define TURBO_NORM_PLAIN 1
#define TURBO_NORM_CORRECTED 2

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
static inline float16 turbo_load_2(const __global uchar* chunk, const int is_first LOOKUP_PARAMETER) {
    const uint16 codes =
        (uint16)(load_u32(chunk)) >> (uint16)(0, 16, 2, 18, 4, 20, 6, 22, 8, 24, 10, 26, 12, 28, 14, 30);
    return LOOKUP(TURBO_CENTROIDS_2, as_int16(codes));
}

/* 8 bytes from the one before the chunk have the even elements' codes from bit 8 of their low half and the odd ones'
 * from bit 0 of their high half. The first chunk has no byte before it in the row. */
static inline float16 turbo_load_3(const __global uchar* chunk, const int is_first LOOKUP_PARAMETER) {
    uint16 codes;
    if (is_first)
        codes = choose_where(0xaaaau, load_u32(chunk + 2), load_u32(chunk)) >>
                (uint16)(0, 8, 3, 11, 6, 14, 9, 17, 12, 20, 15, 23, 18, 26, 21, 29);
    else
        codes = as_uint16((ulong8)(as_ulong(vload8(0, chunk - 1)))) >>
                (uint16)(8, 0, 11, 3, 14, 6, 17, 9, 20, 12, 23, 15, 26, 18, 29, 21);
    return LOOKUP(TURBO_CENTROIDS_3, as_int16(codes));
}

static inline float16 turbo_load_4(const __global uchar* chunk, const int is_first LOOKUP_PARAMETER) {
    const uint16 codes =
        as_uint16((ulong8)(load_u64(chunk))) >> (uint16)(0, 0, 4, 4, 8, 8, 12, 12, 16, 16, 20, 20, 24, 24, 28, 28);
    return LOOKUP(TURBO_CENTROIDS_4, as_int16(codes));
}

/* Codes of 16 numbers, and their centroids: as many midpoints between neighbours as lie below a number. */
static inline int16 turbo_codes_2(float16 z) { return -((z > -0.981599f) + (z > 0.0f) + (z > 0.981599f)); }

static inline int16 turbo_codes_3(float16 z) {
    return -((z > -1.7479275f) + (z > -1.049957f) + (z > -0.5005495f) + (z > 0.0f) + (z > 0.5005495f) +
             (z > 1.049957f) + (z > 1.7479275f));
}

static inline int16 turbo_codes_4(float16 z) {
    return -((z > -2.4008035f) + (z > -1.8435315f) + (z > -1.4371385f) + (z > -1.0992855f) + (z > -0.7995495f) +
             (z > -0.5224035f) + (z > -0.2582215f) + (z > 0.0f) + (z > 0.2582215f) + (z > 0.5224035f) +
             (z > 0.7995495f) + (z > 1.0992855f) + (z > 1.4371385f) + (z > 1.8435315f) + (z > 2.4008035f));
}

/* Brings the codes of a chunk together: the even elements in x, the odd ones in y. */
static inline uint2 turbo_join(int16 code, const uint bits) {
    const uint16 moved = as_uint16(code) << (uint16)(0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7) * bits;
    const uint8 x8 = moved.lo | moved.hi;
    const uint4 x4 = x8.lo | x8.hi;
    return x4.lo | x4.hi;
}

static inline void turbo_store_2(__global uchar* chunk, int16 code) {
    vstore2(convert_ushort2(turbo_join(code, 2)), 0, (__global ushort*)chunk);
}

static inline void turbo_store_3(__global uchar* chunk, int16 code) {
    const uint2 joined = turbo_join(code, 3);
    const ulong bits = joined.x | (ulong)joined.y << 24;
    vstore3((ushort3)(bits, bits >> 16, bits >> 32), 0, (__global ushort*)chunk);
}

static inline void turbo_store_4(__global uchar* chunk, int16 code) {
    vstore4(as_ushort4(turbo_join(code, 4)), 0, (__global ushort*)chunk);
}

static inline float turbo_sum(float16 x) {
    const float8 x8 = x.lo + x.hi;
    const float4 x4 = x8.lo + x8.hi;
    const float2 x2 = x4.lo + x4.hi;
    return x2.x + x2.y;
}

/* Rows whose root mean square is below half of the smallest half are stored as rows of zeros: this is its square. */
#define TURBO_LEAST_SQUARE 0x1p-50f

/* The factor of a row: square is |y|^2, c its centroids. */
static inline float turbo_factor(float square, float c_square, float c_y, const uint n, const uint norm) {
    if (square < TURBO_LEAST_SQUARE * (float)n) return 0.0f;
    const float factor = norm == TURBO_NORM_PLAIN       ? sqrt(square / (float)n)
                         : norm == TURBO_NORM_CORRECTED ? sqrt(square / c_square)
                                                        : square / c_y;
    return fmin(factor, 65504.0f);
}

#define TURBO_FORMAT(format, high, low)                                                                                \
    static inline float16 load16_##format(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {      \
        const uint chunk = first / 16;                                                                                 \
        if (high == low || chunk < TURBO_CHUNKS_HIGH(n))                                                               \
            return turbo_load_##high(row + 2 * high * chunk, chunk == 0 LOOKUP_TABLE);                                 \
        return turbo_load_##low(row + 2 * low * chunk + 2 * (high - low) * TURBO_CHUNKS_HIGH(n),                       \
                                chunk == 0 LOOKUP_TABLE);                                                              \
    }                                                                                                                  \
    static inline float16 codes16_##format(const __global uchar* row, uint first, const uint n LOOKUP_PARAMETER) {     \
        return load16_##format(row, first, n LOOKUP_TABLE);                                                            \
    }                                                                                                                  \
    static inline float row_scale_##format(const __global uchar* row, const uint n) {                                  \
        return load_half16(row + TURBO_SCALE_AT(high, low, n)).s0;                                                     \
    }                                                                                                                  \
    static inline void store_part_##format(__global uchar* row, const float16* x, uint first, uint size, const uint n, \
                                           const uint norm) {                                                          \
        float16 squares = x[0] * x[0];                                                                                 \
        for (uint c = 1; c < n / 16; ++c) squares = fma(x[c], x[c], squares);                                          \
        const float square = turbo_sum(squares);                                                                       \
        /* Of NaN 0, too. */                                                                                           \
        const float inverse = square >= TURBO_LEAST_SQUARE * (float)n ? sqrt((float)n / square) : 0.0f;                \
        float16 c_squares = (float16)(0.0f), c_y = (float16)(0.0f);                                                    \
        for (uint c = 0; c < n / 16; ++c) {                                                                            \
            const int is_high = high == low || c < TURBO_CHUNKS_HIGH(n);                                               \
            const float16 z = inverse == 0.0f ? (float16)(0.0f) : x[c] * inverse;                                      \
            const int16 code = is_high ? turbo_codes_##high(z) : turbo_codes_##low(z);                                 \
            const float16 centroids =                                                                                  \
                is_high ? lookup16(TURBO_CENTROIDS_##high, code) : lookup16(TURBO_CENTROIDS_##low, code);              \
            c_squares = fma(centroids, centroids, c_squares);                                                          \
            c_y = fma(centroids, x[c], c_y);                                                                           \
            if (is_high)                                                                                               \
                turbo_store_##high(row + 2 * high * c, code);                                                          \
            else                                                                                                       \
                turbo_store_##low(row + 2 * low * c + 2 * (high - low) * TURBO_CHUNKS_HIGH(n), code);                  \
        }                                                                                                              \
        const float factor = turbo_factor(square, turbo_sum(c_squares), turbo_sum(c_y), n, norm);                      \
        store_half(row + TURBO_SCALE_AT(high, low, n), isnan(square) ? NAN : factor);                                  \
    }

#define FORMAT_PACKED_turbo4 1
#define FORMAT_ROTATED_turbo4 1
#define FORMAT_IN_ORDER_turbo4 0
#define FORMAT_ROW_SCALED_turbo4 1
#define FORMAT_BIASED_turbo4 0
#define FORMAT_GROUP_turbo4(n) (n)
#define FORMAT_FACTOR_AT_turbo4(n, group) TURBO_SCALE_AT(4, 4, n)
#define FORMAT_ROW_BYTES_turbo4(n) (TURBO_SCALE_AT(4, 4, n) + 2)
#ifdef USES_turbo4
TURBO_FORMAT(turbo4, 4, 4)
#endif

#define FORMAT_PACKED_turbo3 1
#define FORMAT_ROTATED_turbo3 1
#define FORMAT_IN_ORDER_turbo3 0
#define FORMAT_ROW_SCALED_turbo3 1
#define FORMAT_BIASED_turbo3 0
#define FORMAT_GROUP_turbo3(n) (n)
#define FORMAT_FACTOR_AT_turbo3(n, group) TURBO_SCALE_AT(3, 3, n)
#define FORMAT_ROW_BYTES_turbo3(n) (TURBO_SCALE_AT(3, 3, n) + 2)
#ifdef USES_turbo3
TURBO_FORMAT(turbo3, 3, 3)
#endif

#define FORMAT_PACKED_turbo2 1
#define FORMAT_ROTATED_turbo2 1
#define FORMAT_IN_ORDER_turbo2 0
#define FORMAT_ROW_SCALED_turbo2 1
#define FORMAT_BIASED_turbo2 0
#define FORMAT_GROUP_turbo2(n) (n)
#define FORMAT_FACTOR_AT_turbo2(n, group) TURBO_SCALE_AT(2, 2, n)
#define FORMAT_ROW_BYTES_turbo2(n) (TURBO_SCALE_AT(2, 2, n) + 2)
#ifdef USES_turbo2
TURBO_FORMAT(turbo2, 2, 2)
#endif

#define FORMAT_PACKED_turbo3_5 1
#define FORMAT_ROTATED_turbo3_5 1
#define FORMAT_IN_ORDER_turbo3_5 0
#define FORMAT_ROW_SCALED_turbo3_5 1
#define FORMAT_BIASED_turbo3_5 0
#define FORMAT_GROUP_turbo3_5(n) (n)
#define FORMAT_FACTOR_AT_turbo3_5(n, group) TURBO_SCALE_AT(4, 3, n)
#define FORMAT_ROW_BYTES_turbo3_5(n) (TURBO_SCALE_AT(4, 3, n) + 2)
#ifdef USES_turbo3_5
TURBO_FORMAT(turbo3_5, 4, 3)
#endif

#define FORMAT_PACKED_turbo2_5 1
#define FORMAT_ROTATED_turbo2_5 1
#define FORMAT_IN_ORDER_turbo2_5 0
#define FORMAT_ROW_SCALED_turbo2_5 1
#define FORMAT_BIASED_turbo2_5 0
#define FORMAT_GROUP_turbo2_5(n) (n)
#define FORMAT_FACTOR_AT_turbo2_5(n, group) TURBO_SCALE_AT(3, 2, n)
#define FORMAT_ROW_BYTES_turbo2_5(n) (TURBO_SCALE_AT(3, 2, n) + 2)
#ifdef USES_turbo2_5
TURBO_FORMAT(turbo2_5, 3, 2)
#endif
