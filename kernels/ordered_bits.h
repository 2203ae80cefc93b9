/* Floats as numbers that are compared and searched by their bits. */

/* Floats in ascending order, as numbers in ascending order. NaN is the least there is; -0 is 0. */
static inline uint16 ordered_bits(float16 x) {
    const int16 bits = as_int16(select(x + 0.0f, (float16)(-INFINITY), isnan(x)));
    return as_uint16(bits ^ ((bits >> 31) | (int)0x80000000));
}

static inline uint ordered_bits_of(float x) {
    const int bits = as_int(isnan(x) ? -INFINITY : x + 0.0f);
    return as_uint(bits ^ ((bits >> 31) | (int)0x80000000));
}

static inline float from_ordered_bits(uint bits) { return as_float(bits ^ (bits >> 31 ? 0x80000000u : 0xffffffffu)); }
