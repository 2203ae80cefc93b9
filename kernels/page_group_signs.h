/* page_score_signs.h for a group of many work-items: tables of the sums of each nibble of signs in local memory, of as
 * many query heads as find room there. Lanes that look up a table meet in no bank: 16 sums lie side by side. Needs
 * before it: what page_score_signs.h needs, slot_group.h, local_rotation.h, page_pick_head.h. */
#define ENTRIES 0
#if GROUP < PAGE_TABLE_ELEMENTS / K_SIZE
#define HEADS GROUP
#else
#define HEADS (PAGE_TABLE_ELEMENTS / K_SIZE)
#endif
#define HEAD_FLOATS (4 * K_SIZE) /* of a table: K_SIZE / 4 nibbles, 16 sums each */
#define TABLE_FLOATS (HEADS * (HEAD_FLOATS + K_SIZE))

/* Of the query heads from `first` on; ends with a barrier. */
ALWAYS_INLINE void make_tables(const page_pick_params* p, const __global uchar* q, const __global uchar* center,
                               __global float* entries, uint head, uint first, __local float* tables) {
    __local float* const x = tables + HEADS * HEAD_FLOATS;
    const float factor = p->scale * LOG2_E * load_f16(center, K_SIZE);
    for (uint i = LANE; i < HEADS * K_SIZE; i += GROUP_SIZE) {
        const uint g = first + i / K_SIZE;
        x[i] =
            g < GROUP ? load_any(q + row_offset(&p->q, 0, head * GROUP + g, 0), p->q_type, i % K_SIZE) * factor : 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    local_rotate(x, HEADS, K_SIZE, K_SIZE);
    for (uint i = LANE; i < HEADS * HEAD_FLOATS; i += GROUP_SIZE) {
        const __local float* const four = x + i / 16 * 4;
        tables[i] = ((i & 1 ? four[0] : -four[0]) + (i & 2 ? four[1] : -four[1])) + (i & 4 ? four[2] : -four[2]) +
                    (i & 8 ? four[3] : -four[3]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* What each of these heads makes of a page. signature: its first byte. */
ALWAYS_INLINE void score_page(const __global uchar* signature, const __global float* entries,
                              const __local float* tables, float* z) {
#pragma unroll
    for (uint g = 0; g < HEADS; ++g) z[g] = 0.0f;
    for (uint j = 0; j < SIGNATURE_BYTES; ++j) {
        const uint byte = signature[j * BLOCK_PAGES];
        const __local float* const sums = tables + j * 32;
#pragma unroll
        for (uint g = 0; g < HEADS; ++g)
            z[g] += sums[g * HEAD_FLOATS + (byte & 15)] + sums[g * HEAD_FLOATS + 16 + (byte >> 4)];
    }
}
