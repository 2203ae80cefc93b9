/* Scores of pages whose signatures are codes: a table for each codebook has what the query heads make of its centroids,
 * all heads of a centroid side by side, so that a code is one load for all of them.
 *
 *     codebook 0  | centroid 0: head 0, 1, 2, - | centroid 1: head 0, 1, 2, - | ...        - : no such head
 *
 * Heads come in parts of `WIDTH`, one below the other. Needs before it: page_pick_params.h, page_index.h,
 * page_codebooks.h, the formats, K_SIZE, GROUP. */
#if GROUP <= 4
#define WIDTH 4
#elif GROUP <= 8
#define WIDTH 8
#else
#define WIDTH 16
#endif
#define PARTS ((GROUP + WIDTH - 1) / WIDTH)
#define SCORES JOIN(float, WIDTH)
#define LOAD_SCORES JOIN(vload, WIDTH)
#define CODEBOOK_SCORES (CENTROIDS * WIDTH)

typedef struct score_tables {
    const __global float* entries;
} score_tables;

/* What the heads make of 16 centroids of a codebook, the first of them at `centroid`. */
static inline void store_entries(__global float* entries, const float (*x)[K_SIZE], const __global uchar* centroids,
                                 uint codebook, uint centroid) {
    float16 sum[GROUP];
    for (uint g = 0; g < GROUP; ++g) sum[g] = (float16)(0.0f);
    for (uint i = codebook * CENTROID_ELEMENTS; i < (codebook + 1) * CENTROID_ELEMENTS; ++i) {
        const float16 elements = load16_f16(centroids, i * CENTROIDS + centroid, 16);
        for (uint g = 0; g < GROUP; ++g) sum[g] = fma(elements, (float16)(x[g][i]), sum[g]);
    }
    float lanes[PARTS * WIDTH][16];
    for (uint g = 0; g < PARTS * WIDTH; ++g) vstore16(g < GROUP ? sum[g] : (float16)(0.0f), 0, lanes[g]);
    for (uint part = 0; part < PARTS; ++part) {
        __global float* entry = entries + (part * CODEBOOKS + codebook) * CODEBOOK_SCORES + centroid * WIDTH;
        for (uint lane = 0; lane < 16; ++lane)
            for (uint g = 0; g < WIDTH; ++g) *entry++ = lanes[part * WIDTH + g][lane];
    }
}

static inline void make_tables(const page_pick_params* p, const __global uchar* q, const __global uchar* codebooks,
                               __global float* entries, uint head, score_tables* tables) {
    float x[GROUP][K_SIZE];
    for (uint g = 0; g < GROUP; ++g) {
        const __global uchar* row = q + row_offset(&p->q, 0, head * GROUP + g, 0);
        float query[K_SIZE];
        for (uint c = 0; c < K_SIZE / 16; ++c) vstore16(load16_any(row, p->q_type, c * 16) * p->scale, c, query);
        multiply(x[g], query_matrix(codebooks), query);
    }
    for (uint codebook = 0; codebook < CODEBOOKS; ++codebook)
        for (uint centroid = 0; centroid < CENTROIDS; centroid += 16)
            store_entries(entries, (const float(*)[K_SIZE])x, centroids_of(codebooks), codebook, centroid);
    tables->entries = entries;
}

/* What each query head makes of the 16 pages of a block. */
static inline void score_block(const __global uchar* block, const score_tables* tables, float16* z) {
    float scores[PARTS * WIDTH][BLOCK_PAGES];
    for (uint page = 0; page < BLOCK_PAGES; ++page)
        for (uint part = 0; part < PARTS; ++part) {
            const __global float* const entries = tables->entries + part * CODEBOOKS * CODEBOOK_SCORES;
            SCORES sum = (SCORES)(0.0f);
            for (uint j = 0; j < CODEBOOKS; ++j)
                sum += LOAD_SCORES(block[j * BLOCK_PAGES + page], entries + j * CODEBOOK_SCORES);
            float heads[WIDTH];
            JOIN(vstore, WIDTH)(sum, 0, heads);
            for (uint g = 0; g < WIDTH; ++g) scores[part * WIDTH + g][page] = heads[g];
        }
    for (uint g = 0; g < GROUP; ++g) z[g] = vload16(0, scores[g]);
}
