/* The rotation R of rotation.h on rows of floats in local memory, by all work-items of a group. x: [rows][n], each row
 * `stride` after the one before. Needs before it: rotation.h, GROUP_SIZE and LANE. */

/* Where element i of all rows lies. */
static inline uint local_place(uint i, const uint n, const uint stride) {
    return stride == n ? i : i / n * stride + i % n;
}

static inline void local_flip_signs(__local float* x, const uint rows, const uint n, const uint stride) {
    for (uint i = LANE; i < rows * n; i += GROUP_SIZE) {
        const uint e = i % n, at = local_place(i, n, stride);
        if (rotation_signs[e / 32] >> e % 32 & 1) x[at] = -x[at];
    }
}

static inline void local_transform(__local float* x, const uint rows, const uint n, const uint stride) {
    const uint block = rotation_block(n);
    const float scale = 1.0f / sqrt((float)block);
    for (uint i = LANE; i < rows * n; i += GROUP_SIZE) x[local_place(i, n, stride)] *= scale;
    for (uint step = 1; step < block; step *= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = LANE; i < rows * n / 2; i += GROUP_SIZE) {
            const uint at = local_place(i / step * step * 2 + i % step, n, stride);
            const float a = x[at], b = x[at + step];
            x[at] = a + b;
            x[at + step] = a - b;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

static inline void local_reflect(__local float* x, const uint rows, const uint n, const uint stride) {
    const uint block = rotation_block(n);
    if (block == n) return;
    for (uint i = LANE; i < rows * block; i += GROUP_SIZE) {
        __local float* column = x + i / block * stride + i % block;
        float sum = 0.0f;
        for (uint e = 0; e < n; e += block) sum += column[e];
        sum *= 2.0f * (float)block / (float)n;
        for (uint e = 0; e < n; e += block) column[e] -= sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* x := R x, and its inverse. All work-items call them, after a barrier; there is one at the end. */
static inline void local_rotate(__local float* x, const uint rows, const uint n, const uint stride) {
    local_flip_signs(x, rows, n, stride);
    barrier(CLK_LOCAL_MEM_FENCE);
    local_transform(x, rows, n, stride);
    local_reflect(x, rows, n, stride);
}

static inline void local_rotate_back(__local float* x, const uint rows, const uint n, const uint stride) {
    local_reflect(x, rows, n, stride);
    local_transform(x, rows, n, stride);
    local_flip_signs(x, rows, n, stride);
    barrier(CLK_LOCAL_MEM_FENCE);
}
