/* What one group does with the keys of one segment that it has: tile by tile
 *
 *     classify -> logits -> transforms -> softmax -> values
 *
 * and what each of them does is its own file's. Needs before it: the stages, of which an attention kernel has
 * sdpa_logits and sdpa_values of its own, segment_queries, load_queries and SEGMENT. */
#pragma winnow repeatable

static inline void attend_segment(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                  const sdpa_result* result) {
    const sdpa_segment_view segment = find_segment(p, memory, work);
    segment_queries q;
    load_queries(p, memory, work, &q);
    float from_mean[ROWS];
    mean_scores(p, memory, work, from_mean);
    float16 sum[ROWS]; /* lane by lane: added up at the end */
    sdpa_begin_rows(result, sum);
    float rescale[ROWS_OF_16];

    int16 position[TILE_VECTORS];
    float16 bias[ROWS * TILE_VECTORS]; /* [ROWS][TILE_VECTORS], as s */
    float16 s[ROWS * TILE_VECTORS];
    int lanes[ROWS * TILE];
    for (uint i = 0; i < ROWS * TILE_VECTORS; ++i) s[i] = (float16)(0.0f); /* a part of a tile leaves the rest */
    int read_few = 0;
#if LENGTHS
    const sdpa_tile past_length = {work->key_end, work->split_end - work->key_end};
    store_unseen_scores(p, memory, work, &past_length);
#endif
    for (uint key = work->key_begin; key < work->key_end; key += TILE) {
        const sdpa_tile tile = {key, min((uint)TILE, work->key_end - key)};
        sdpa_seen seen = {.lanes = lanes};
        sdpa_classify(p, memory, work, &tile, segment.slots, position, bias, &seen);
        if (seen.none && !scores_want_unseen(p)) {
            store_unseen_scores(p, memory, work, &tile);
            sdpa_leave_seen(p, memory, work, SEGMENT, key, result->maximum, &seen);
            continue;
        }
        sdpa_logits(p, work, &tile, &segment, &q, s);
        add_mean_scores(work, from_mean, s);
        sdpa_transform(p, memory, work, &tile, position, bias, s, &seen);
        sdpa_leave(p, memory, work, SEGMENT, key, s, 1);
        sdpa_softmax(work, s, &seen, result->maximum, sum, rescale);
        sdpa_leave(p, memory, work, SEGMENT, key, s, 0);
        sdpa_leave_seen(p, memory, work, SEGMENT, key, result->maximum, &seen);
        sdpa_values(p, work, &tile, &segment, s, &seen, sum, rescale, result, &read_few);
    }
    for (uint r = 0; r < ROWS; ++r) result->sum[r] = sum_of_lanes(sum[r]);
    finish_segment(p, memory, work, result);
}
