/* Storage format bf16: the upper half of a single, two bytes a value. A format offers, for a row at any address that
 * its elements may have: load16 (16 values from element `first`), load (one value), and store16 / store, which round
 * to nearest even. Packed formats join with the same functions
 * (format_packed.h); n, the elements of the row, matters to them alone. */
#define FORMAT_ELEMENT_BYTES_bf16 2
#define FORMAT_PACKED_bf16 0
#define FORMAT_ROTATED_bf16 0
#define FORMAT_IN_ORDER_bf16 1
#define FORMAT_ROW_SCALED_bf16 0
#define FORMAT_BIASED_bf16 0
#define FORMAT_GROUP_bf16(n) (n)
#define FORMAT_ROW_BYTES_bf16(n) ((n)*2)

static inline float16 load16_bf16(const __global uchar* row, uint first, const uint n) {
    return as_float16(convert_uint16(vload16(0, (const __global ushort*)row + first)) << 16);
}

static inline float load_bf16(const __global uchar* row, uint index) {
    return as_float((uint)((const __global ushort*)row)[index] << 16);
}

/* Rounding could carry a NaN's payload into the exponent and the sign, so a NaN is made quiet instead. */
static inline void store16_bf16(__global uchar* row, uint first, float16 x) {
    const uint16 bits = as_uint16(x);
    const uint16 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    const uint16 quiet = (bits >> 16) | 64u;
    vstore16(convert_ushort16(select(rounded, quiet, isnan(x))), 0, (__global ushort*)row + first);
}

static inline void store_bf16(__global uchar* row, uint index, float x) {
    const uint bits = as_uint(x);
    const uint stored = isnan(x) ? (bits >> 16) | 64u : (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    ((__global ushort*)row)[index] = (ushort)stored;
}
