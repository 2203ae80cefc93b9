/* Arithmetic on vectors of 16 floats that the attention kernels share: sums and maxima across lanes, exp and tanh.
 * exp is correct to 1e-7 relative without fast-math, and NaN comes out as NaN. */

/* Clang's builtin becomes one instruction; shuffle2 is a loop through memory in some implementations. The indices have
 * names because OpenCL C 1.2 has no variadic macros. */
#if defined(__has_builtin)
#if __has_builtin(__builtin_shufflevector)
#define SHUFFLE(a, b, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf)                                  \
    __builtin_shufflevector(a, b, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf)
#endif
#endif
#ifndef SHUFFLE
#define SHUFFLE(a, b, s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf)                                  \
    shuffle2(a, b, (uint16)(s0, s1, s2, s3, s4, s5, s6, s7, s8, s9, sa, sb, sc, sd, se, sf))
#endif

/* Four vectors to one: 128-bit block i of the result holds partial sums [a, b, c, d] of the arguments' blocks i. */
static inline float16 sum_lanes_of_4(float16 a, float16 b, float16 c, float16 d) {
    const float16 ab = SHUFFLE(a, b, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
                       SHUFFLE(a, b, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    const float16 cd = SHUFFLE(c, d, 0, 16, 1, 17, 4, 20, 5, 21, 8, 24, 9, 25, 12, 28, 13, 29) +
                       SHUFFLE(c, d, 2, 18, 3, 19, 6, 22, 7, 23, 10, 26, 11, 27, 14, 30, 15, 31);
    return SHUFFLE(ab, cd, 0, 1, 16, 17, 4, 5, 20, 21, 8, 9, 24, 25, 12, 13, 28, 29) +
           SHUFFLE(ab, cd, 2, 3, 18, 19, 6, 7, 22, 23, 10, 11, 26, 27, 14, 15, 30, 31);
}

/* Block i of the result is the sum of the four blocks of argument i. After sum_lanes_of_4 of vectors 0-3, 4-7, 8-11
 * and 12-15, lane j is the whole sum of vector j. */
static inline float16 sum_blocks_of_4(float16 a, float16 b, float16 c, float16 d) {
    const float16 ab = SHUFFLE(a, b, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                       SHUFFLE(a, b, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    const float16 cd = SHUFFLE(c, d, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23) +
                       SHUFFLE(c, d, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    return SHUFFLE(ab, cd, 0, 1, 2, 3, 8, 9, 10, 11, 16, 17, 18, 19, 24, 25, 26, 27) +
           SHUFFLE(ab, cd, 4, 5, 6, 7, 12, 13, 14, 15, 20, 21, 22, 23, 28, 29, 30, 31);
}

/* The larger one; b where a is NaN, so that a maximum never becomes NaN (the sum of the exponentials does). */
static inline float16 larger(float16 a, float16 b) { return select(b, a, a > b); }

static inline float sum_of_lanes(float16 x) {
    const float8 x8 = x.lo + x.hi;
    const float4 x4 = x8.lo + x8.hi;
    const float2 x2 = x4.lo + x4.hi;
    return x2.x + x2.y;
}

static inline float maximum_of_lanes(float16 x) {
    const float8 x8 = select(x.hi, x.lo, x.lo > x.hi);
    const float4 x4 = select(x8.hi, x8.lo, x8.lo > x8.hi);
    const float2 x2 = select(x4.hi, x4.lo, x4.lo > x4.hi);
    return x2.x > x2.y ? x2.x : x2.y;
}

#define LOG2_E 1.44269504088896341f

/* e to the x for x <= 88; 0 below -87. x = n ln 2 + r, e^r by a polynomial for |r| <= ln 2 / 2 (coefficients of
 * Cephes' expf). */
static inline float16 exp16(float16 x) {
    const float16 clamped = select(x, (float16)(-88.0f), x < -88.0f); /* keeps NaN */
    /* Adding 1.5 * 2^23 leaves the nearest integer in the low bits. */
    const float16 shifted = fma(clamped, (float16)(LOG2_E), (float16)(12582912.0f));
    const float16 n = shifted - 12582912.0f;
    float16 r = fma(n, (float16)(-0.693359375f), clamped);
    r = fma(n, (float16)(2.12194440e-4f), r);
    float16 y = (float16)(1.9875691500e-4f);
    y = fma(y, r, (float16)(1.3981999507e-3f));
    y = fma(y, r, (float16)(8.3334519073e-3f));
    y = fma(y, r, (float16)(4.1665795894e-2f));
    y = fma(y, r, (float16)(1.6666665459e-1f));
    y = fma(y, r, (float16)(5.0000001201e-1f));
    y = fma(y * r, r, r) + 1.0f;
    const float16 power = as_float16((as_int16(shifted) - (0x4b400000 - 127)) << 23);
    return select(y * power, (float16)(0.0f), x < -87.0f);
}

/* 2 to the x for x <= 0; below -126 the result means nothing. Correct to 2e-7 relative. NaN comes out as NaN. */
static inline float16 exp2_of_negative16(float16 x) {
    const float16 shifted = x + 12582912.0f; /* 1.5 * 2^23, as above */
    const float16 r = x - (shifted - 12582912.0f);
    float16 y = (float16)(1.534581159526972e-4f);
    y = fma(y, r, (float16)(1.339993121623974e-3f));
    y = fma(y, r, (float16)(9.618488958626981e-3f));
    y = fma(y, r, (float16)(5.550328776974536e-2f));
    y = fma(y, r, (float16)(2.402264689062006e-1f));
    y = fma(y, r, (float16)(6.931472057372634e-1f));
    y = fma(y, r, (float16)(1.0f));
    return y * as_float16((as_int16(shifted) - (0x4b400000 - 127)) << 23);
}

static inline float exp1(float x) { return exp16((float16)(x)).s0; }

/* 1 - 2 / (e^2x + 1), and near 0, where that cancels, the series up to x^13. */
static inline float16 tanh16(float16 x) {
    const float16 magnitude = fabs(x);
    const float16 bounded = select(magnitude, (float16)(20.0f), magnitude > 20.0f);
    const float16 far = 1.0f - 2.0f / (exp16(2.0f * bounded) + 1.0f);
    const float16 x2 = x * x;
    float16 near = (float16)(21844.0f / 6081075.0f);
    near = fma(near, x2, (float16)(-1382.0f / 155925.0f));
    near = fma(near, x2, (float16)(62.0f / 2835.0f));
    near = fma(near, x2, (float16)(-17.0f / 315.0f));
    near = fma(near, x2, (float16)(2.0f / 15.0f));
    near = fma(near, x2, (float16)(-1.0f / 3.0f));
    near = fma(near * x2, x, x);
    return select(copysign(far, x), near, magnitude < 0.35f);
}
