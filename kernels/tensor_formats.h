/* Rows as products of small matrices take them (tensor_cores.h): as halves. Of a packed format these are codes, which
 * factors are applied to afterwards. For a format F that has FORMAT_TENSOR_F
 *
 *     FORMAT_RUN_F           elements of a value side by side that a lane takes: 8, or 4 where 8 lanes of 8 would take
 *                            elements of different factors
 *     FORMAT_LOW_HALVES_F    1: a half is not enough for a code, and there is a low half, too
 *     raw8_F                 8 elements as they are stored
 *     load8_F(row, first)    loads them; first is a multiple of 8
 *     halves8_F(raw, first, tables, &high, &low)
 *     load4_F(row, first)    the same for 4 elements of a value, in bf16, where FORMAT_RUN_F is 4
 *     bf16_4_F(raw, first)
 *
 * A row of f16 lies at a multiple of 16 bytes. Needs before it: the formats and tensor_cores.h. */

static inline uint two_shorts(const __global ushort* from) { return from[0] | (uint)from[1] << 16; }

/* ---- f16 ---- */

#define FORMAT_TENSOR_f16 1
#define FORMAT_RUN_f16 8
#define FORMAT_LOW_HALVES_f16 0
typedef uint4 raw8_f16;

static inline uint4 load8_f16(const __global uchar* row, uint first) {
    return *(const __global uint4*)(row + first * 2);
}

static inline void halves8_f16(uint4 raw, uint first, const __local uint* tables, uint4* high, uint4* low) {
    *high = raw;
}

/* ---- q8_0, q4_0: blocks of 32 ---- */

#define FORMAT_TENSOR_q8_0 1
#define FORMAT_RUN_q8_0 4
#define FORMAT_LOW_HALVES_q8_0 0
typedef uint2 raw8_q8_0;

/* In 0 .. 255, for bytes_as_halves. */
static inline uint load4_q8_0(const __global uchar* row, uint first) {
    return two_shorts((const __global ushort*)(row + first / 32 * 34 + 2 + first % 32)) ^ 0x80808080u;
}

static inline uint2 load8_q8_0(const __global uchar* row, uint first) {
    return (uint2)(load4_q8_0(row, first), load4_q8_0(row, first + 4));
}

static inline uint2 bf16_4_q8_0(uint raw, uint first) { return bytes_as_bf16(raw, 128); }

static inline void halves8_q8_0(uint2 raw, uint first, const __local uint* tables, uint4* high, uint4* low) {
    *high = (uint4)(bytes_as_halves(raw.x, 128), bytes_as_halves(raw.y, 128));
}

#define FORMAT_TENSOR_q4_0 1
#define FORMAT_RUN_q4_0 4
#define FORMAT_LOW_HALVES_q4_0 0
typedef uint2 raw8_q4_0;

static inline uint load4_q4_0(const __global uchar* row, uint first) {
    return two_shorts((const __global ushort*)(row + first / 32 * 18 + 2 + first % 16));
}

static inline uint2 load8_q4_0(const __global uchar* row, uint first) {
    return (uint2)(load4_q4_0(row, first), load4_q4_0(row, first + 4));
}

static inline uint q4_0_nibbles(uint raw, uint first) { return (first & 16 ? raw >> 4 : raw) & 0x0f0f0f0fu; }
static inline uint2 bf16_4_q4_0(uint raw, uint first) { return bytes_as_bf16(q4_0_nibbles(raw, first), 8); }

static inline void halves8_q4_0(uint2 raw, uint first, const __local uint* tables, uint4* high, uint4* low) {
    *high = (uint4)(bytes_as_halves(q4_0_nibbles(raw.x, first), 8), bytes_as_halves(q4_0_nibbles(raw.y, first), 8));
}

/* ---- turbo4, turbo3, turbo2: one factor for a row ---- */

/* The tables: of each centroid the high half and, in the upper bits, the low one, where the tables of floats have it.
 * All work-items call it. */
static inline void fill_tensor_tables(__local uint* tables, const __local float* centroids) {
    for (uint i = LANE; i < LOOKUP_AT_IQ4_NL_VALUES; i += GROUP_SIZE) {
        const uint high = two_as_halves((float2)(centroids[i], 0.0f));
        const uint low = two_as_halves((float2)(centroids[i] - halves_as_two(high).x, 0.0f));
        tables[i] = (high & 0xffffu) | low << 16;
    }
}

/* 4 codes of even elements in the low bits of raw, and 4 of odd ones from bit 16 on. */
static inline void turbo_halves8(uint raw, const uint bits, const __local uint* table, uint4* high, uint4* low) {
    uint at_high[4], at_low[4];
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        const uint even = table[raw >> bits * i & ((1u << bits) - 1)];
        const uint odd = table[raw >> (16 + bits * i) & ((1u << bits) - 1)];
        at_high[i] = low_halves(even, odd);
        at_low[i] = high_halves(even, odd);
    }
    *high = (uint4)(at_high[0], at_high[1], at_high[2], at_high[3]);
    *low = (uint4)(at_low[0], at_low[1], at_low[2], at_low[3]);
}

static inline uint turbo_load8_4(const __global uchar* chunk, uint first) {
    const __global ushort* from = (const __global ushort*)chunk + first % 16 / 8;
    return from[0] | (uint)from[2] << 16;
}

static inline uint turbo_load8_3(const __global uchar* chunk, uint first) {
    const __global ushort* from = (const __global ushort*)chunk;
    const uint even = from[0] | (uint)from[1] << 16, odd = from[1] >> 8 | (uint)from[2] << 8;
    return (even >> first % 16 / 8 * 12 & 0xfffu) | (odd >> first % 16 / 8 * 12 & 0xfffu) << 16;
}

static inline uint turbo_load8_2(const __global uchar* chunk, uint first) {
    return two_shorts((const __global ushort*)chunk) >> first % 16 & 0x00ff00ffu;
}

#define TURBO_TENSOR_FORMAT(format, bits)                                                                              \
    typedef uint raw8_##format;                                                                                        \
    static inline uint load8_##format(const __global uchar* row, uint first) {                                         \
        return turbo_load8_##bits(row + first / 16 * (2 * bits), first);                                               \
    }                                                                                                                  \
    static inline void halves8_##format(uint raw, uint first, const __local uint* tables, uint4* high, uint4* low) {   \
        turbo_halves8(raw, bits, tables + LOOKUP_AT_TURBO_CENTROIDS_##bits, high, low);                                \
    }

#define FORMAT_TENSOR_turbo4 1
#define FORMAT_RUN_turbo4 8
#define FORMAT_LOW_HALVES_turbo4 1
TURBO_TENSOR_FORMAT(turbo4, 4)

#define FORMAT_TENSOR_turbo3 1
#define FORMAT_RUN_turbo3 8
#define FORMAT_LOW_HALVES_turbo3 1
TURBO_TENSOR_FORMAT(turbo3, 3)

#define FORMAT_TENSOR_turbo2 1
#define FORMAT_RUN_turbo2 8
#define FORMAT_LOW_HALVES_turbo2 1
TURBO_TENSOR_FORMAT(turbo2, 2)
