/* What storing in ggml's formats shares. A block is two chunks of 16, a and b, of 32 elements. What is stored has to be
 * ggml's to the bit, so the arithmetic is done in float in the order of its quantize_row_*_ref, without contraction.
 * A block that holds infinity or NaN, which ggml leaves undefined, becomes NaN: d (and m) are NaN, the codes 0. */
#define HALF_NAN ((ushort)0x7e00)

static inline void store_half(__global uchar* at, float x) {
    if (isnan(x))
        *(__global ushort*)at = HALF_NAN;
    else
        vstore_half_rte(x, 0, (__global half*)at);
}

static inline int largest_of_lanes(int16 x) {
    const int8 x8 = max(x.lo, x.hi);
    const int4 x4 = max(x8.lo, x8.hi);
    const int2 x2 = max(x4.lo, x4.hi);
    return max(x2.x, x2.y);
}

static inline int smallest_of_lanes(int16 x) {
    const int8 x8 = min(x.lo, x.hi);
    const int4 x4 = min(x8.lo, x8.hi);
    const int2 x2 = min(x4.lo, x4.hi);
    return min(x2.x, x2.y);
}

static inline uint union_of_lanes(uint16 x) {
    const uint8 x8 = x.lo | x.hi;
    const uint4 x4 = x8.lo | x8.hi;
    const uint2 x2 = x4.lo | x4.hi;
    return x2.x | x2.y;
}

/* Integers in the order of the numbers: NaN and infinity lie outside of [LEAST_FINITE, GREATEST_FINITE]. */
#define GREATEST_FINITE 0x7f7fffff
#define LEAST_FINITE (-GREATEST_FINITE - 1)
static inline int16 ordered(float16 x) { return as_int16(x) ^ (as_int16(x) >> 31 & 0x7fffffff); }
static inline float from_ordered(int x) { return as_float(x ^ (x >> 31 & 0x7fffffff)); }

/* The largest magnitude, infinity or NaN where there is one. */
static inline float block_magnitude(float16 a, float16 b) {
    return as_float(largest_of_lanes(max(as_int16(fabs(a)), as_int16(fabs(b)))));
}

/* The first element of this magnitude, with its sign. */
static inline float first_of_magnitude(float16 a, float16 b, float magnitude) {
    const int16 place = (int16)(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const int16 in_a = select((int16)(64), place - (as_int16(a) >> 31), fabs(a) == magnitude);
    const int16 in_b = select((int16)(64), place + 32 - (as_int16(b) >> 31), fabs(b) == magnitude);
    return smallest_of_lanes(min(in_a, in_b)) & 1 ? -magnitude : magnitude;
}

typedef struct block_range {
    float low, high; /* where neither is infinite or NaN */
    int is_finite;
} block_range;

/* The smallest and the largest element; of several zeros the first. */
static inline block_range block_range_of(float16 a, float16 b) {
    const int low = smallest_of_lanes(min(ordered(a), ordered(b)));
    const int high = largest_of_lanes(max(ordered(a), ordered(b)));
    block_range range = {from_ordered(low), from_ordered(high), low >= LEAST_FINITE && high <= GREATEST_FINITE};
    if (range.low == 0.0f) range.low = first_of_magnitude(a, b, 0.0f);
    return range;
}

/* Halves away from 0, as C's roundf: just less than a half is added, so that nothing below one gets there. */
static inline int16 round_away(float16 x) {
    const float16 sum = x + copysign((float16)(0.49999997f), x);
    return select((int16)(0), convert_int16(sum), fabs(sum) < 2147483648.0f);
}

static inline float inverse_or_0(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

/* Codes from numbers that are not negative: what no int can hold becomes 0, as it does in the low byte of x86's. Both
 * arguments of min are vectors, because Oclgrind reads past the end of an integer that stands for all lanes. */
static inline int16 truncated(float16 x, int most) {
    return min(select((int16)(0), convert_int16(x), fabs(x) < 2147483648.0f), (int16)(most));
}

/* What is stored of a block, for codes of 4 or 5 bits. */
typedef struct block_codes {
    float d, m;      /* NaN where the codes are 0 because the block is not finite */
    int16 low, high; /* of a and of b */
} block_codes;

/* x is about d * (code - middle); the first element of the largest magnitude has code 0. */
static inline block_codes codes_around_0(float16 a, float16 b, const int middle) {
#pragma OPENCL FP_CONTRACT OFF
    const float magnitude = block_magnitude(a, b);
    const int is_finite = isfinite(magnitude);
    const float d = (magnitude == 0.0f ? 0.0f : first_of_magnitude(a, b, magnitude)) / -(float)middle;
    const float inverse = is_finite ? inverse_or_0(d) : 0.0f;
    const float half_up = (float)middle + 0.5f;
    block_codes codes;
    codes.d = is_finite ? d : NAN;
    codes.m = 0.0f;
    codes.low = is_finite ? truncated(a * inverse + half_up, 2 * middle - 1) : (int16)(0);
    codes.high = is_finite ? truncated(b * inverse + half_up, 2 * middle - 1) : (int16)(0);
    return codes;
}

/* x is about d * code + m; the smallest element has code 0, the largest has `most`. */
static inline block_codes codes_from_lowest(float16 a, float16 b, const int most) {
#pragma OPENCL FP_CONTRACT OFF
    const block_range range = block_range_of(a, b);
    const float d = (range.high - range.low) / (float)most;
    const float inverse = inverse_or_0(d);
    block_codes codes;
    codes.d = range.is_finite ? d : NAN;
    codes.m = range.is_finite ? range.low : NAN;
    codes.low = range.is_finite ? truncated((a - range.low) * inverse + 0.5f, most) : (int16)(0);
    codes.high = range.is_finite ? truncated((b - range.low) * inverse + 0.5f, most) : (int16)(0);
    return codes;
}

static inline void store_nibbles(__global uchar* at, int16 low, int16 high) {
    vstore16(convert_uchar16((low & 15) | (high & 15) << 4), 0, at);
}

/* Bit 4 of the codes of a block, one bit an element. */
static inline void store_fifth_bits(__global uchar* at, int16 low, int16 high) {
    const uint16 bits = as_uint16(select((int16)(0), LANE_BITS, (low & 16) != 0)) |
                        as_uint16(select((int16)(0), LANE_BITS, (high & 16) != 0)) << 16;
    vstore2(as_ushort2(union_of_lanes(bits)), 0, (__global ushort*)at);
}
