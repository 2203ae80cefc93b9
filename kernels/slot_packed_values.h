/* slot_values.h for the values of a packed segment: rotate_point makes of the point less the mean what its rows are
 * compared with, packed_distance compares. Needs before it: slot_values.h, rotation.h, V_FORMAT and, where that is
 * rotated, V_SIZE. */
#pragma winnow repeatable

#if JOIN(FORMAT_ROTATED_, V_FORMAT)
static inline void rotate_point(__global float* point) {
    float16 x[V_SIZE / 16];
    for (uint c = 0; c < V_SIZE / 16; ++c) x[c] = vload16(c, point);
    rotate(x, V_SIZE);
    for (uint c = 0; c < V_SIZE / 16; ++c) vstore16(x[c], c, point);
}
#else
static inline void rotate_point(__global float* point) {}
#endif

#if JOIN(FORMAT_PACKED_, V_FORMAT)
static inline float packed_distance(const __global uchar* row, uint type, const __global float* point, uint size) {
#if JOIN(FORMAT_ROTATED_, V_FORMAT)
    const uint n = V_SIZE;
#else
    const uint n = size;
#endif
#if JOIN(FORMAT_ROW_SCALED_, V_FORMAT)
    const float scale = JOIN(row_scale_, V_FORMAT)(row, n);
#else
    const float scale = 1.0f;
#endif
    float16 squares = (float16)(0.0f);
    for (uint i = 0; i < n; i += 16) {
        const float16 x = fma(JOIN(load16_, V_FORMAT)(row, i, n), (float16)(scale), -vload16(0, point + i));
        squares = fma(x, x, squares);
    }
    return sqrt(sum_of_lanes(squares));
}
#else
static inline float packed_distance(const __global uchar* row, uint type, const __global float* point, uint size) {
    return dense_distance(row, type, point, size);
}
#endif
