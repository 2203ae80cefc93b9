/* Sums and maxima of a group's floats, always in the same order. All work-items call them; they end with a barrier.
 * Needs before it: slot_group.h. */

ALWAYS_INLINE float float_sum_of_group(__local group_sums* sums, float x) {
    sums->of_lane[LANE] = as_uint(x);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE < 16) {
        float sum = 0.0f;
        for (uint i = LANE * 16; i < LANE * 16 + 16; ++i) sum += as_float(sums->of_lane[i]);
        sums->of_16[LANE] = as_uint(sum);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float sum = 0.0f;
    for (uint i = 0; i < 16; ++i) sum += as_float(sums->of_16[i]);
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

/* Of what is no NaN. */
ALWAYS_INLINE float float_maximum_of_group(__local group_sums* sums, float x) {
    sums->of_lane[LANE] = as_uint(x);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE < 16) {
        float largest = -INFINITY;
        for (uint i = LANE * 16; i < LANE * 16 + 16; ++i) largest = fmax(largest, as_float(sums->of_lane[i]));
        sums->of_16[LANE] = as_uint(largest);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    float largest = -INFINITY;
    for (uint i = 0; i < 16; ++i) largest = fmax(largest, as_float(sums->of_16[i]));
    barrier(CLK_LOCAL_MEM_FENCE);
    return largest;
}
