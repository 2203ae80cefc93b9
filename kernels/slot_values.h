/* How far the values of slots lie from a point: |v - point|, where v is what the segment's row and its mean stand for.
 * The point less the mean, and rotated where the packed segment's rows are, is made once for a head (compare_values);
 * from there on rows are read as they lie; slot_packed_values.h has what depends on the packed segment's format. Needs
 * before it: the formats, format_any.h, kv_rows.h, slot_parts.h, LANE, GROUP_SIZE. */

/* o - mean, where either may be NULL: a point of 0, a mean of 0. Of several work-items each makes a part. */
static inline void compare_values(__global float* to, const __global float* sum, float outputs,
                                  const __global float* mean, uint size) {
    for (uint i = LANE; i < size; i += GROUP_SIZE)
        to[i] = (sum && outputs > 0.0f ? sum[i] / outputs : 0.0f) - (mean ? mean[i] : 0.0f);
}

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
