/* Attention in several launches, one softmax over the keys of all of them: what a row has so far is carried from one to
 * the next, as it is carried from one split to the combination. Needs before it: float16_math.h, sdpa_chunks.h,
 * sdpa_memory.h and sdpa_work_tile.h.
 *
 *     carried[q_heads][q_len] = float accumulator[chunks of V * 16], maximum, sum */

static inline __global float* carried_row(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r) {
    return (__global float*)(memory->carried + p->carried.offset + work->head[r] * p->carried.stride[1] +
                             work->token[r] * p->carried.stride[2]);
}

/* Adds what earlier launches have of a row. accumulator: [V_CHUNKS]. */
static inline void sdpa_join_carried(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r,
                                     float* maximum, float* sum, float16* accumulator) {
    const __global float* row = carried_row(p, memory, work, r);
    const float carried_maximum = row[V_CHUNKS * 16], joined = max(carried_maximum, *maximum);
    const float carried_factor = exp1(carried_maximum - joined), factor = exp1(*maximum - joined);
    for (uint c = 0; c < V_CHUNKS; ++c)
        accumulator[c] = fma(accumulator[c], (float16)(factor), vload16(c, row) * carried_factor);
    *sum = fma(*sum, factor, row[V_CHUNKS * 16 + 1] * carried_factor);
    *maximum = joined;
}

static inline void sdpa_leave_carried(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r,
                                      float maximum, float sum, const float16* accumulator) {
    __global float* row = carried_row(p, memory, work, r);
    for (uint c = 0; c < V_CHUNKS; ++c) vstore16(accumulator[c], c, row);
    row[V_CHUNKS * 16] = maximum;
    row[V_CHUNKS * 16 + 1] = sum;
}
