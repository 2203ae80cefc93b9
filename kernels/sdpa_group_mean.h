/* What the mean that the keys of a segment lack adds to the logits, in groups of many work-items. Needs before it:
 * sdpa_group_join.h, sdpa_tensor_rows.h, sdpa_segment_names.h and SEGMENT. */
#pragma winnow repeatable

/* What the mean that the keys lack adds to a row's logits. */
ALWAYS_INLINE void group_mean_scores(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    float sum = 0.0f;
#if SLOTS
    const sdpa_segment* segment = &p->segment[SEGMENT];
    if (segment->has_k_mean) {
        if (LANE_ROW < ROWS) {
            const __global uchar* mean = head_slice(memory->segment[SEGMENT].k_mean, &segment->k_mean, p, &g->work);
            const __global uchar* row = q_row(p, memory, &g->work, LANE_ROW);
            for (uint e = LANE_OF_ROW; e < HEAD_SIZE; e += ROW_LANES)
                sum = fma(load_any(row, p->q_type, e), load_f32(mean, e), sum);
        }
        sum = sum_of_row(g, sum) * p->scale;
    }
#endif
    if (LANE_ROW < ROWS && LANE_OF_ROW == 0) g->from_mean[LANE_ROW] = sum;
}
