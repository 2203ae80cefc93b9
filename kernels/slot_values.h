/* How far the values of slots lie from a point: |v - point|, where v is what the segment's row and its mean stand for.
 * The point less the mean, and rotated where the packed segment's rows are, is made once for a head (compare_values);
 * from there on rows are read as they lie. Needs before it: the formats, format_any.h, rotation.h, kv_rows.h,
 * slot_parts.h, V_FORMAT and, where that is rotated, V_SIZE. */

/* o - mean, where either may be NULL: a point of 0, a mean of 0. */
static inline void compare_values(__global float* to, const __global float* sum, float outputs,
                                  const __global float* mean, uint size) {
    for (uint i = 0; i < size; ++i) to[i] = (sum && outputs > 0.0f ? sum[i] / outputs : 0.0f) - (mean ? mean[i] : 0.0f);
}

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

static inline float dense_distance(const __global uchar* row, uint type, const __global float* point, uint size) {
    float16 squares = (float16)(0.0f);
    uint i = 0;
    for (; i + 16 <= size; i += 16) {
        const float16 x = load16_any(row, type, i) - vload16(0, point + i);
        squares = fma(x, x, squares);
    }
    float square = sum_of_lanes(squares);
    for (; i < size; ++i) {
        const float x = load_any(row, type, i) - point[i];
        square = fma(x, x, square);
    }
    return sqrt(square);
}

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
