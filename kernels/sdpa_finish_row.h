/* What becomes of a row after its last key. Needs before it: float16_math.h, sdpa_memory.h and sdpa_tensor_rows.h. */

/* How a row ends: what its accumulated values still need, 0 where it saw no key; and its largest logit and the inverse
 * of its sum, the sink's among them, of which its probabilities are made. */
typedef struct sdpa_row_end {
    float factor, maximum, inverse;
} sdpa_row_end;

/* The sink joins; of several groups that finish a row, one stores statistics and the count of values passed over. */
static inline sdpa_row_end sdpa_finish_row(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r,
                                           float maximum, float sum, uint skipped, const int is_stored) {
    float scale = 1.0f;
    const bool saw_nothing = sum == 0.0f;
    if (saw_nothing) {
        maximum = -INFINITY;
    } else if (p->has_sinks) {
        const float sink = per_head(memory->sinks, p->sinks_offset, work->head[r]);
        const float joined = sink > maximum ? sink : maximum;
        scale = exp1(maximum - joined);
        sum = sum * scale + exp1(sink - joined);
        maximum = joined;
    }
    if (p->has_stats && is_stored) {
        __global uchar* row = memory->stats + p->stats.offset + work->batch * p->stats.stride[0] +
                              work->head[r] * p->stats.stride[1] + work->token[r] * p->stats.stride[2];
        store_f32(row, 0, maximum);
        store_f32(row, 1, sum);
    }
    if (p->has_skipped && is_stored) {
        __global uchar* row = memory->skipped + p->skipped.offset + work->batch * p->skipped.stride[0] +
                              work->head[r] * p->skipped.stride[1] + work->token[r] * p->skipped.stride[2];
        *(__global uint*)row = skipped;
    }
    const float inverse = saw_nothing ? 0.0f : 1.0f / sum;
    const sdpa_row_end end = {scale * inverse, saw_nothing ? 0.0f : maximum, inverse};
    return end;
}
