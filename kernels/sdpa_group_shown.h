/* What becomes of one logit between the inner product and the softmax, in groups of many work-items, and the scores
 * that are wanted. Needs before it: a group's state, sdpa_tensor_rows.h and float16_math.h. */

ALWAYS_INLINE void group_store_score(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint r,
                                     uint key, float score) {
    if (r < g->work.rows) store_f32(scores_row(p, memory, &g->work, r), key, score);
}

/* A logit goes through softcap, mask and ALiBi; the score that is wanted is stored. bias: what the mask adds, -INFINITY
 * where the row does not see the key, which is what comes back then. */
ALWAYS_INLINE float group_shown(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint r,
                                uint key, int position, float bias, float logit) {
    const float capped = p->softcap != 0.0f ? p->softcap * tanh16((float16)(logit / p->softcap)).s0 : logit;
    float s = capped;
    if (p->mask_type != TYPE_NONE)
        s += p->has_slopes ? per_head(memory->slopes, p->slopes_offset, g->work.head[r]) * bias : bias;
    if (p->has_alibi) {
        /* A difference of integers first: it is exact where the query's position is within 2^30, as a key's is. */
        const long query = Q_OFFSET(p, &g->work) + (long)g->work.token[r];
        const int near = (int)clamp(query, -(1L << 30), 1L << 30);
        const float distance = (float)(position - near) - (float)(query - near);
        s += per_head(memory->alibi, p->alibi_offset, g->work.head[r]) * distance;
    }
    const float shown = bias != -INFINITY ? s : -INFINITY;
    if (p->scores_mode != SDPA_SCORES_NONE)
        group_store_score(p, memory, g, r, key,
                          p->scores_mode == SDPA_SCORES_RAW          ? logit
                          : p->scores_mode == SDPA_SCORES_SOFTCAPPED ? capped
                                                                     : shown);
    return shown;
}

/* The scores of a tile that no row sees. */
ALWAYS_INLINE void store_unseen(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint key,
                                uint count) {
    if (p->scores_mode == SDPA_SCORES_NONE) return;
    for (uint r = 0; r < ROWS; ++r)
        for (uint t = LANE; t < count; t += GROUP_SIZE) group_store_score(p, memory, g, r, key + t, -INFINITY);
}
