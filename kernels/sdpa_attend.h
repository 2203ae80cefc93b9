/* What one group does: it walks over the segments that its keys lie in. Needs before it: attend_segment of every
 * segment, sdpa_append.h and sdpa_splits.h. */

#if SEGMENTS == 1
static inline void attend_segments(const sdpa_params* p, const sdpa_memory* memory, sdpa_work_tile* work,
                                   const sdpa_result* result) {
    attend_segment_0(p, memory, work, result);
}
#else
/* Adds what a group has of another segment. */
static inline void sdpa_merge(const sdpa_work_tile* work, const sdpa_result* result, const sdpa_result* other) {
    for (uint r = 0; r < work->rows; ++r) {
        const float maximum = max(result->maximum[r], other->maximum[r]);
        const float factor = exp1(result->maximum[r] - maximum);
        const float other_factor = exp1(other->maximum[r] - maximum);
        for (uint c = r * V_CHUNKS; c < (r + 1) * V_CHUNKS; ++c)
            result->accumulator[c] =
                fma(other->accumulator[c], (float16)(other_factor), result->accumulator[c] * factor);
        result->maximum[r] = maximum;
        result->sum[r] = fma(other->sum[r], other_factor, result->sum[r] * factor);
        result->skipped[r] += other->skipped[r];
    }
}

#define ATTEND_SEGMENT(i)                                                                                              \
    if (sdpa_has_keys_of(&p->segment[i], work, begin, end)) {                                                          \
        sdpa_turn_to(work, &p->segment[i], begin, end);                                                                \
        attend_segment_##i(p, memory, work, is_first ? result : &other);                                               \
        if (!is_first) sdpa_merge(work, result, &other);                                                               \
        is_first = 0;                                                                                                  \
    }

static inline void attend_segments(const sdpa_params* p, const sdpa_memory* memory, sdpa_work_tile* work,
                                   const sdpa_result* result) {
    float16 accumulator[ROWS * V_CHUNKS];
    float maximum[ROWS_OF_16], sum[ROWS];
    uint skipped[ROWS];
    const sdpa_result other = {accumulator, maximum, sum, skipped};
    const uint begin = work->key_begin, end = work->key_end;
    int is_first = 1; /* every group has keys of some segment */
    DO_EVERY_SEGMENT(ATTEND_SEGMENT)
}
#endif

OUT_OF_LINE static void attend(const sdpa_params* p, const sdpa_memory* memory, uint group_number) {
    sdpa_work_tile work;
    sdpa_work_tile_init(&work, p, memory, group_number, p->splits);
    float16 accumulator[ROWS * V_CHUNKS];
    float maximum[ROWS_OF_16], sum[ROWS];
    uint skipped[ROWS];
    const sdpa_result result = {accumulator, maximum, sum, skipped};
    sdpa_append(p, memory, &work);
    attend_segments(p, memory, &work, &result);
    sdpa_leave_result(p, memory, &work, &result);
}
