/* Numbers of a row's lanes, joined. Needs before it: a group's state with by_lane, ROW_LANES and SUBGROUP_SIZE; with
 * subgroups subgroup.h. */

/* Every work-item gives a number; every one of a row's lanes gets their sum, or the largest. All work-items call them;
 * each begins and ends with a barrier. */
#define JOIN_LANES(g, mine, result, joined)                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    (g)->by_lane[LANE] = (mine);                                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    const __local float4* fours = (const __local float4*)((g)->by_lane + LANE_ROW * ROW_LANES);                        \
    for (uint i = 0; i < ROW_LANES / 4; ++i) {                                                                         \
        const float4 other = fours[i];                                                                                 \
        (result) = (joined);                                                                                           \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE)

#if SUBGROUP_SIZE
static inline float sum_of_row(__local group_state* g, float x) {
#pragma unroll
    for (uint bit = ROW_LANES / 2; bit > 0; bit /= 2) x += shuffle_xor(x, bit);
    return x;
}

static inline uint count_of_row(__local group_state* g, uint x) {
#pragma unroll
    for (uint bit = ROW_LANES / 2; bit > 0; bit /= 2) x += as_uint(shuffle_xor(as_float(x), bit));
    return x;
}

static inline float maximum_of_row(__local group_state* g, float x) {
#pragma unroll
    for (uint bit = ROW_LANES / 2; bit > 0; bit /= 2) {
        const float other = shuffle_xor(x, bit);
        x = other > x ? other : x;
    }
    return x;
}
#else
static inline float sum_of_row(__local group_state* g, float x) {
    float4 sums = (float4)(0.0f);
    JOIN_LANES(g, x, sums, sums + other);
    return (sums.x + sums.y) + (sums.z + sums.w);
}

static inline uint count_of_row(__local group_state* g, uint x) {
    uint4 counts = (uint4)(0);
    JOIN_LANES(g, as_float(x), counts, counts + as_uint4(other));
    return (counts.x + counts.y) + (counts.z + counts.w);
}

static inline float maximum_of_row(__local group_state* g, float x) {
    float4 maxima = (float4)(x);
    JOIN_LANES(g, x, maxima, select(maxima, other, other > maxima));
    const float low = maxima.y > maxima.x ? maxima.y : maxima.x, high = maxima.w > maxima.z ? maxima.w : maxima.z;
    return high > low ? high : low;
}
#endif
