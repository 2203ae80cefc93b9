/* Runs of elements in vectors of 16, of which the last may be a part: the first `count` lanes, at most 16. */

/* `rest` is in the other lanes. */
static inline int16 load_ints(const __global int* from, uint count, int rest) {
    if (count >= 16) return vload16(0, from);
    int lanes[16];
    for (uint lane = 0; lane < 16; ++lane) lanes[lane] = lane < count ? from[lane] : rest;
    return vload16(0, lanes);
}

static inline float16 load_floats(const __global float* from, uint count, float rest) {
    if (count >= 16) return vload16(0, from);
    float lanes[16];
    for (uint lane = 0; lane < 16; ++lane) lanes[lane] = lane < count ? from[lane] : rest;
    return vload16(0, lanes);
}

static inline void store_ints(__global int* to, uint count, int16 x) {
    if (count >= 16) {
        vstore16(x, 0, to);
        return;
    }
    int lanes[16];
    vstore16(x, 0, lanes);
    for (uint lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}

static inline void store_floats(__global float* to, uint count, float16 x) {
    if (count >= 16) {
        vstore16(x, 0, to);
        return;
    }
    float lanes[16];
    vstore16(x, 0, lanes);
    for (uint lane = 0; lane < count; ++lane) to[lane] = lanes[lane];
}
