/* Scores of pages whose signatures are codes, times log2 e: a table for each codebook has what the query heads make of
 * its centroids, all heads of a centroid side by side, so that a code is one load for all of them.
 *
 *     codebook 0  | centroid 0: head 0, 1, 2, - | centroid 1: head 0, 1, 2, - | ...        - : no such head
 *
 * Heads come in parts of `WIDTH`, one below the other. Needs before it: page_pick_params.h, page_index.h,
 * page_codebooks.h, float16_math.h, the formats, format_any.h, kv_rows.h, K_SIZE, GROUP. */
#define WIDTH 4
#define PARTS ((GROUP + WIDTH - 1) / WIDTH)
#define CODEBOOK_SCORES (CENTROIDS * WIDTH)
#define ENTRIES (PARTS * CODEBOOKS * CODEBOOK_SCORES)

typedef struct score_tables {
    const __global float* entries;
} score_tables;

/* Four vectors of 16 of a head each to four heads side by side, 16 times. */
static inline void heads_side_by_side(const float16* heads, __global float16* found) {
    const float16 low_01 = SHUFFLE(heads[0], heads[1], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const float16 low_23 = SHUFFLE(heads[2], heads[3], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    const float16 high_01 = SHUFFLE(heads[0], heads[1], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    const float16 high_23 = SHUFFLE(heads[2], heads[3], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
    found[0] = SHUFFLE(low_01, low_23, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
    found[1] = SHUFFLE(low_01, low_23, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
    found[2] = SHUFFLE(high_01, high_23, 0, 1, 16, 17, 2, 3, 18, 19, 4, 5, 20, 21, 6, 7, 22, 23);
    found[3] = SHUFFLE(high_01, high_23, 8, 9, 24, 25, 10, 11, 26, 27, 12, 13, 28, 29, 14, 15, 30, 31);
}

/* The other way round. */
static inline void heads_apart(const float16* side_by_side, float16* heads) {
    const float16 a = side_by_side[0], b = side_by_side[1], c = side_by_side[2], d = side_by_side[3];
    const float16 ab_01 = SHUFFLE(a, b, 0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const float16 cd_01 = SHUFFLE(c, d, 0, 4, 8, 12, 16, 20, 24, 28, 1, 5, 9, 13, 17, 21, 25, 29);
    const float16 ab_23 = SHUFFLE(a, b, 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
    const float16 cd_23 = SHUFFLE(c, d, 2, 6, 10, 14, 18, 22, 26, 30, 3, 7, 11, 15, 19, 23, 27, 31);
    heads[0] = SHUFFLE(ab_01, cd_01, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    heads[1] = SHUFFLE(ab_01, cd_01, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
    heads[2] = SHUFFLE(ab_23, cd_23, 0, 1, 2, 3, 4, 5, 6, 7, 16, 17, 18, 19, 20, 21, 22, 23);
    heads[3] = SHUFFLE(ab_23, cd_23, 8, 9, 10, 11, 12, 13, 14, 15, 24, 25, 26, 27, 28, 29, 30, 31);
}

/* What the heads make of 16 centroids of a codebook, the first of them at `centroid`. */
static inline void store_entries(__global float* entries, const float (*x)[K_SIZE], const __global uchar* centroids,
                                 uint codebook, uint centroid) {
    float16 sum[GROUP];
    for (uint g = 0; g < GROUP; ++g) sum[g] = (float16)(0.0f);
#pragma unroll 4
    for (uint i = codebook * CENTROID_ELEMENTS; i < (codebook + 1) * CENTROID_ELEMENTS; ++i) {
        const float16 elements = load16_f16(centroids, i * CENTROIDS + centroid, 16);
#pragma unroll
        for (uint g = 0; g < GROUP; ++g) sum[g] = fma(elements, (float16)(x[g][i]), sum[g]);
    }
    for (uint part = 0; part < PARTS; ++part) {
        float16 heads[WIDTH];
#pragma unroll
        for (uint g = 0; g < WIDTH; ++g) heads[g] = part * WIDTH + g < GROUP ? sum[part * WIDTH + g] : (float16)(0.0f);
        heads_side_by_side(
            heads, (__global float16*)(entries + (part * CODEBOOKS + codebook) * CODEBOOK_SCORES + centroid * WIDTH));
    }
}

static inline void make_tables(const page_pick_params* p, const __global uchar* q, const __global uchar* codebooks,
                               __global float* entries, uint head, score_tables* tables) {
    float x[GROUP][K_SIZE];
    for (uint g = 0; g < GROUP; ++g) {
        const __global uchar* row = q + row_offset(&p->q, 0, head * GROUP + g, 0);
        float query[K_SIZE];
        for (uint c = 0; c < K_SIZE / 16; ++c)
            vstore16(load16_any(row, p->q_type, c * 16) * (p->scale * LOG2_E), c, query);
        multiply(x[g], query_matrix(codebooks), query);
    }
    for (uint codebook = 0; codebook < CODEBOOKS; ++codebook)
        for (uint centroid = 0; centroid < CENTROIDS; centroid += 16)
            store_entries(entries, (const float(*)[K_SIZE])x, centroids_of(codebooks), codebook, centroid);
    tables->entries = entries;
}

static inline float4 score_page(const __global uchar* block, const __global float4* entries, uint page) {
    float4 sum = entries[block[page]];
#pragma unroll
    for (uint j = 1; j < CODEBOOKS; ++j) sum += entries[j * CENTROIDS + block[j * BLOCK_PAGES + page]];
    return sum;
}

/* What each query head makes of the 16 pages of a block. */
static inline void score_block(const __global uchar* block, const score_tables* tables, float16* z) {
    for (uint part = 0; part < PARTS; ++part) {
        const __global float4* const entries = (const __global float4*)(tables->entries) + part * CODEBOOKS * CENTROIDS;
        float16 pages[4], heads[WIDTH];
#pragma unroll
        for (uint i = 0; i < 4; ++i)
            pages[i] = (float16)(score_page(block, entries, i * 4), score_page(block, entries, i * 4 + 1),
                                 score_page(block, entries, i * 4 + 2), score_page(block, entries, i * 4 + 3));
        heads_apart(pages, heads);
#pragma unroll
        for (uint g = 0; g < WIDTH && part * WIDTH + g < GROUP; ++g) z[part * WIDTH + g] = heads[g];
    }
}
