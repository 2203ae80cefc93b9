/* The rotation R of the turbo formats, on a row in private chunks of 16: it spreads a row's energy evenly over its
 * elements. For n = m * 2^k elements, 2^k the largest power of two in n:
 *
 *     signs       x[e] is negated where bit e % 32 of rotation_signs[e / 32] is set
 *     transform   Walsh-Hadamard, in natural order, of each of the m blocks of 2^k elements, divided by sqrt(2^k)
 *     reflection  across the blocks, where m > 1: at each place of a block 2/m times the sum over the blocks is taken
 *                 from each block's element
 *
 * Each step is its own inverse, so that R^-1 is the same steps backwards. Needs before it: float16_math.h. */

/* The low halves of the numbers of splitmix64 with seed 0. */
__constant uint rotation_signs[18] = {0x7b1dcdafu, 0xa1b965f4u, 0x8009454fu, 0x724c81ecu, 0x51a8749bu, 0x747ea2eau,
                                      0x1f4532e1u, 0xc916ab3cu, 0x41c98ac3u, 0x368cb0a6u, 0x3cb13d09u, 0x055bdef6u,
                                      0xe0bbdb7bu, 0x983aa92fu, 0x00cc4d19u, 0x971d80abu, 0x75521255u, 0x2b7f7f86u};

#define ROTATION_SHIFTS ((uint16)(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16))

/* 2^k: the elements of a block. */
static inline uint rotation_block(const uint n) { return n & (0u - n); }

static inline void flip_signs(float16* x, const uint n) {
#pragma unroll
    for (uint c = 0; c < n / 16; ++c) {
        const uint16 bits = (uint16)(rotation_signs[c / 2] >> c % 2 * 16) << ROTATION_SHIFTS;
        x[c] = as_float16(as_uint16(x[c]) ^ (bits & 0x80000000u));
    }
}

/* Scaled before it is added up, so that no sum is larger than the row. */
static inline float16 transform_chunk(float16 x, float scale) {
    x *= scale;
    x = fma(x, (float16)(1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1),
            SHUFFLE(x, x, 1, 0, 3, 2, 5, 4, 7, 6, 9, 8, 11, 10, 13, 12, 15, 14));
    x = fma(x, (float16)(1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1),
            SHUFFLE(x, x, 2, 3, 0, 1, 6, 7, 4, 5, 10, 11, 8, 9, 14, 15, 12, 13));
    x = fma(x, (float16)(1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1),
            SHUFFLE(x, x, 4, 5, 6, 7, 0, 1, 2, 3, 12, 13, 14, 15, 8, 9, 10, 11));
    return fma(x, (float16)(1, 1, 1, 1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1, -1, -1),
               SHUFFLE(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 0, 1, 2, 3, 4, 5, 6, 7));
}

static inline void transform_blocks(float16* x, const uint n) {
    const uint block = rotation_block(n);
    const float scale = block == 16    ? 0.25f
                        : block == 32  ? 0.17677669529663689f
                        : block == 64  ? 0.125f
                        : block == 128 ? 0.08838834764831845f
                        : block == 256 ? 0.0625f
                                       : 0.04419417382415922f;
#pragma unroll
    for (uint c = 0; c < n / 16; ++c) x[c] = transform_chunk(x[c], scale);
#pragma unroll
    for (uint step = 1; step < block / 16; step *= 2)
#pragma unroll
        for (uint pair = 0; pair < n / 32; ++pair) {
            const uint c = pair / step * step * 2 + pair % step;
            const float16 a = x[c], b = x[c + step];
            x[c] = a + b;
            x[c + step] = a - b;
        }
}

static inline void reflect_blocks(float16* x, const uint n) {
    const uint block = rotation_block(n);
    if (block == n) return;
#pragma unroll
    for (uint b = 0; b < block / 16; ++b) {
        float16 sum = x[b];
        for (uint c = b + block / 16; c < n / 16; c += block / 16) sum += x[c];
        sum *= 2.0f * (float)block / (float)n;
        for (uint c = b; c < n / 16; c += block / 16) x[c] -= sum;
    }
}

/* x := R x. n: a multiple of 16 up to 576, known when this is compiled. */
static inline void rotate(float16* x, const uint n) {
    flip_signs(x, n);
    transform_blocks(x, n);
    reflect_blocks(x, n);
}

/* x := R^-1 x. */
static inline void rotate_back(float16* x, const uint n) {
    reflect_blocks(x, n);
    transform_blocks(x, n);
    flip_signs(x, n);
}

/* x := R x for a format that stores it. Where an element is larger than 2^40 the row's factor is past the largest half
 * anyway, and the row is brought down to there, so that nothing overflows. Infinity becomes NaN. */
static inline void rotate_to_segment(float16* x, const uint n) {
    float16 largest = (float16)(0.0f);
    for (uint c = 0; c < n / 16; ++c) largest = larger(fabs(x[c]), largest);
    const float magnitude = maximum_of_lanes(largest);
    if (magnitude > 0x1p40f)
        for (uint c = 0; c < n / 16; ++c) x[c] *= 0x1p40f / magnitude;
    rotate(x, n);
}
