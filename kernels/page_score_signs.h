/* Scores of pages whose signatures are signs, times log2 e: nibble by nibble, from a table of 16 sums each. Needs
 * before it: page_pick_params.h, page_index.h, float16_math.h, the formats, rotation.h, vector_lanes.h, kv_rows.h,
 * K_SIZE, GROUP. */
#define ENTRIES 0

/* What a query head makes of signatures: the sums of each nibble of signs. */
typedef struct head_table {
    float16 sums[K_SIZE / 4]; /* lane v: of elements 4 i .. 4 i + 3 by the signs of v */
} head_table;

typedef struct score_tables {
    head_table heads[GROUP];
} score_tables;

static inline void make_table(const page_pick_params* p, const __global uchar* q, float factor, head_table* table) {
    float16 x[K_SIZE / 16];
    for (uint c = 0; c < K_SIZE / 16; ++c) x[c] = load16_any(q, p->q_type, c * 16) * factor;
    rotate(x, K_SIZE);
    for (uint c = 0; c < K_SIZE / 16; ++c) {
        float lanes[16];
        vstore16(x[c], 0, lanes);
        for (uint i = 0; i < 4; ++i)
            table->sums[c * 4 + i] =
                lanes[i * 4] * (float16)(-1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1, -1, 1) +
                lanes[i * 4 + 1] * (float16)(-1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1, -1, -1, 1, 1) +
                lanes[i * 4 + 2] * (float16)(-1, -1, -1, -1, 1, 1, 1, 1, -1, -1, -1, -1, 1, 1, 1, 1) +
                lanes[i * 4 + 3] * (float16)(-1, -1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1);
    }
}

/* center: of the head; f lies behind it. */
static inline void make_tables(const page_pick_params* p, const __global uchar* q, const __global uchar* center,
                               __global float* entries, uint head, score_tables* tables) {
    const float factor = p->scale * LOG2_E * load_f16(center, K_SIZE);
    for (uint g = 0; g < GROUP; ++g)
        make_table(p, q + row_offset(&p->q, 0, head * GROUP + g, 0), factor, tables->heads + g);
}

/* What each query head makes of the 16 pages of a block. */
static inline void score_block(const __global uchar* block, const score_tables* tables, float16* z) {
    for (uint g = 0; g < GROUP; ++g) z[g] = (float16)(0.0f);
    for (uint j = 0; j < SIGNATURE_BYTES; ++j) {
        const int16 bytes = convert_int16(vload16(j, block));
        const int16 low = bytes & 15, high = bytes >> 4;
#pragma unroll
        for (uint g = 0; g < GROUP; ++g)
            z[g] += lookup16(tables->heads[g].sums[2 * j], low) + lookup16(tables->heads[g].sums[2 * j + 1], high);
    }
}
