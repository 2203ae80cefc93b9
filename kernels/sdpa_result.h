/* What a group has when it has seen its keys, and how a row's output, statistics and probabilities come of it. Needs
 * before it: float16_math.h, sdpa_chunks.h, sdpa_scores.h, sdpa_transform.h, sdpa_importance.h, sdpa_carried.h and
 * sdpa_finish_row.h. */

/* Rows past work.rows are there, and mean nothing. */
typedef struct sdpa_result {
    float16* accumulator; /* [ROWS][V_CHUNKS], used up */
    float* maximum;       /* [ROWS_OF_16] */
    float* sum;           /* [ROWS] */
    uint* skipped;        /* [ROWS] */
} sdpa_result;

/* sum: [ROWS], lane by lane. */
static inline void sdpa_begin_rows(const sdpa_result* result, float16* sum) {
    for (uint r = 0; r < ROWS; ++r) {
        sum[r] = (float16)(0.0f);
        result->skipped[r] = 0;
    }
    for (uint r = 0; r < ROWS_OF_16; ++r) result->maximum[r] = NO_MAXIMUM;
    for (uint i = 0; i < ROWS * V_CHUNKS; ++i) result->accumulator[i] = (float16)(0.0f);
}

/* A row of out from its accumulator, which is used up. accumulator: [V_CHUNKS]. */
static inline void sdpa_store_out(const sdpa_params* p, __global uchar* row, float16* accumulator, float factor) {
    for (uint chunk = 0; chunk < V_CHUNKS; ++chunk) accumulator[chunk] *= factor;
#if V_HEAD_SIZE < 16
    float lanes[16];
    vstore16(accumulator[0], 0, lanes);
    for (uint lane = 0; lane < V_HEAD_SIZE; ++lane) store_any(row, p->out_type, lane, lanes[lane]);
#else
    for (uint chunk = 0; chunk < V_CHUNKS; ++chunk)
        store16_any(row, p->out_type, CHUNK_START(chunk, V_HEAD_SIZE), accumulator[chunk]);
#endif
}

/* A row has its maximum, its sum and its accumulator over the keys of this launch. accumulator: [V_CHUNKS], used up. */
static inline void sdpa_end_row(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work, uint r,
                                float maximum, float sum, uint skipped, float16* accumulator, sdpa_rows_end* end) {
    if (p->joins_carried) sdpa_join_carried(p, memory, work, r, &maximum, &sum, accumulator);
    if (p->leaves_carried) {
        sdpa_leave_carried(p, memory, work, r, maximum, sum, accumulator);
        return;
    }
    const sdpa_row_end row = sdpa_finish_row(p, memory, work, r, maximum, sum, skipped, 1);
    if (p->scores_mode == SDPA_SCORES_PROBS)
        sdpa_normalise(p, scores_row(p, memory, work, r), row.maximum, row.inverse);
    sdpa_store_out(p, out_row(p, memory, work, r), accumulator, row.factor);
    sdpa_note_end(end, r, maximum, row.factor);
}

/* The result of a work tile that was not split. */
static inline void sdpa_store_result(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                     const sdpa_result* result) {
    sdpa_rows_end end;
    sdpa_begin_end(&end);
    for (uint r = 0; r < work->rows; ++r)
        sdpa_end_row(p, memory, work, r, result->maximum[r], result->sum[r], result->skipped[r],
                     result->accumulator + r * V_CHUNKS, &end);
    sdpa_importance(p, memory, work, &end);
}
