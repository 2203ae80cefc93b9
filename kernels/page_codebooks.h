/* The codebooks of a KV head: where its matrices and its centroids lie, and a row times a matrix. Needs before it:
 * page_index_params.h, the formats, K_SIZE. */
#define CENTROIDS 256
#define CENTROID_ELEMENTS 16
#define CODEBOOKS (K_SIZE / CENTROID_ELEMENTS)
#define MATRIX_BYTES (2 * K_SIZE * K_SIZE)

static inline const __global uchar* codebooks_of_head(const __global uchar* codebooks, const page_index* index,
                                                      uint head) {
    return codebooks + index->codebooks.offset + (long)head * index->codebooks.stride;
}

static inline const __global uchar* key_matrix(const __global uchar* its) { return its; }
static inline const __global uchar* query_matrix(const __global uchar* its) { return its + MATRIX_BYTES; }
static inline const __global uchar* centroids_of(const __global uchar* its) { return its + 2 * MATRIX_BYTES; }

/* y = matrix x. */
static inline void multiply(float* y, const __global uchar* matrix, const float* x) {
    float16 sum[K_SIZE / 16];
    for (uint c = 0; c < K_SIZE / 16; ++c) sum[c] = (float16)(0.0f);
    for (uint e = 0; e < K_SIZE; ++e)
#pragma unroll 4
        for (uint c = 0; c < K_SIZE / 16; ++c)
            sum[c] = fma(load16_f16(matrix, e * K_SIZE + c * 16, 16), (float16)(x[e]), sum[c]);
    for (uint c = 0; c < K_SIZE / 16; ++c) vstore16(sum[c], c, y);
}
