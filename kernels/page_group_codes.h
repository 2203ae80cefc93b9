/* page_score_codes.h for a group of many work-items: what four query heads make of each centroid lies side by side in
 * scratch memory, so that a code is one load for all of them.
 *
 *     codebook 0  | centroid 0: head 0, 1, 2, 3 | centroid 1: ... | ...
 *
 * Needs before it: what page_score_codes.h needs, slot_group.h, page_pick_head.h. */
#define HEADS PAGE_CODE_HEADS
#if HEADS != 4
#error "four heads are a vector"
#endif
#define ENTRIES (CODEBOOKS * CENTROIDS * HEADS)
#define TABLE_FLOATS (2 * HEADS * K_SIZE) /* queries, and B times them */

/* Of the query heads from `first` on, 0 where there is none; ends with a barrier. */
ALWAYS_INLINE void make_tables(const page_pick_params* p, const __global uchar* q, const __global uchar* codebooks,
                               __global float* entries, uint head, uint first, __local float* tables) {
    __local float* const x = tables + HEADS * K_SIZE;
    for (uint i = LANE; i < HEADS * K_SIZE; i += GROUP_SIZE) {
        const uint g = first + i / K_SIZE;
        tables[i] = g < GROUP ? load_any(q + row_offset(&p->q, 0, head * GROUP + g, 0), p->q_type, i % K_SIZE) *
                                    (p->scale * LOG2_E)
                              : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint c = LANE; c < K_SIZE; c += GROUP_SIZE) {
        float4 sum = (float4)(0.0f);
        for (uint e = 0; e < K_SIZE; ++e) {
            const float4 element =
                (float4)(tables[e], tables[K_SIZE + e], tables[2 * K_SIZE + e], tables[3 * K_SIZE + e]);
            sum = fma((float4)(load_f16(query_matrix(codebooks), e * K_SIZE + c)), element, sum);
        }
        vstore4(sum, c, x);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = LANE; i < CODEBOOKS * CENTROIDS; i += GROUP_SIZE) {
        const uint codebook = i / CENTROIDS, centroid = i % CENTROIDS;
        float4 sum = (float4)(0.0f);
        for (uint e = codebook * CENTROID_ELEMENTS; e < (codebook + 1) * CENTROID_ELEMENTS; ++e)
            sum = fma((float4)(load_f16(centroids_of(codebooks), e * CENTROIDS + centroid)), vload4(e, x), sum);
        vstore4(sum, i, entries);
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* What each of these heads makes of a page. signature: its first code. */
ALWAYS_INLINE void score_page(const __global uchar* signature, const __global float* entries,
                              const __local float* tables, float* z) {
    float4 sum = vload4(signature[0], entries);
    for (uint j = 1; j < CODEBOOKS; ++j) sum += vload4(j * CENTROIDS + signature[j * BLOCK_PAGES], entries);
    vstore4(sum, 0, z);
}
