/* What one group does: it walks over the segments that its keys lie in. Needs before it: attend_segment of every
 * segment. */

#if STORES > 1
/* Adds what a group has of another segment. */
static inline void sdpa_merge(const sdpa_work_tile* unit, const sdpa_result* result, const sdpa_result* other) {
    for (uint r = 0; r < unit->rows; ++r) {
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

/* Turns to a segment: of the keys [begin, end) of all segments, those that lie in it. Returns whether there are any. */
static inline int sdpa_turn_to(sdpa_work_tile* unit, const sdpa_segment* segment, uint begin, uint end) {
    if (end <= segment->first_key || begin >= segment->first_key + segment->slots) return 0;
    unit->key_begin = max(begin, segment->first_key) - segment->first_key;
    unit->key_end = min(end - segment->first_key, segment->slots);
    unit->first_score = segment->first_score;
    return 1;
}

#define ATTEND_SEGMENT(i)                                                                                              \
    if (sdpa_turn_to(&unit, &p->segment[i], begin, end)) {                                                             \
        attend_segment_##i(p, memory, &unit, is_first ? &result : &other);                                             \
        if (!is_first) sdpa_merge(&unit, &result, &other);                                                             \
        is_first = 0;                                                                                                  \
    }
#endif

/* A function of its own, because PoCL compiles the packed segment of a kernel three times. */
__attribute__((noinline)) static void attend(const sdpa_params* p, const sdpa_memory* memory, uint group_number) {
    sdpa_work_tile unit;
    sdpa_work_tile_init(&unit, p, group_number, p->splits);
    float16 accumulator[ROWS * V_CHUNKS];
    float maximum[ROWS_OF_16], sum[ROWS];
    uint skipped[ROWS];
    const sdpa_result result = {accumulator, maximum, sum, skipped};
#if STEP
    sdpa_take_token(p, memory, &unit);
#endif
#if STORES == 1
    attend_segment(p, memory, &unit, &result);
#else
    float16 other_accumulator[ROWS * V_CHUNKS];
    float other_maximum[ROWS_OF_16], other_sum[ROWS];
    uint other_skipped[ROWS];
    const sdpa_result other = {other_accumulator, other_maximum, other_sum, other_skipped};
    const uint begin = unit.key_begin, end = unit.key_end;
    int is_first = 1; /* every group has keys of some store */
    ATTEND_SEGMENT(0)
    ATTEND_SEGMENT(1)
#if STORES > 2
    ATTEND_SEGMENT(2)
#endif
#if STORES > 3
    ATTEND_SEGMENT(3)
#endif
#endif
    sdpa_leave_result(p, memory, &unit, &result);
}
