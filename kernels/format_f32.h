/* Storage format f32: IEEE single precision, four bytes a value. A format offers, for a row at any address that its
 * elements may have: load16 (16 values from element `first`), load (one value), and store16 / store, which round to
 * nearest even. Packed formats join with the same functions
 * (format_packed.h); n, the elements of the row, matters to them alone. */
#define FORMAT_ELEMENT_BYTES_f32 4
#define FORMAT_PACKED_f32 0
#define FORMAT_ROTATED_f32 0
#define FORMAT_IN_ORDER_f32 1
#define FORMAT_ROW_SCALED_f32 0
#define FORMAT_BIASED_f32 0
#define FORMAT_GROUP_f32(n) (n)
#define FORMAT_ROW_BYTES_f32(n) ((n)*4)

static inline float16 load16_f32(const __global uchar* row, uint first, const uint n) {
    return vload16(0, (const __global float*)row + first);
}

static inline float load_f32(const __global uchar* row, uint index) { return ((const __global float*)row)[index]; }

static inline void store16_f32(__global uchar* row, uint first, float16 x) {
    vstore16(x, 0, (__global float*)row + first);
}

static inline void store_f32(__global uchar* row, uint index, float x) { ((__global float*)row)[index] = x; }
