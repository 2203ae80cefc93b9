/* scores_out: logits at the stage that the caller wants, and probabilities made of them. Needs before it:
 * vector_parts.h, float16_math.h, sdpa_tensor_rows.h and sdpa_tile.h. */

/* Scores that this launch does not read again go past the caches: an ordinary store would read the line first, twice
 * the traffic. Only where the processor has such stores, and lines that are whole. */
#if defined(__x86_64__) && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define HAS_STREAMING_STORES
#endif
#endif
static inline void stream_part_f32(__global uchar* row, uint first, float16 x, uint count) {
#ifdef HAS_STREAMING_STORES
    __global float16* line = (__global float16*)((__global float*)row + first);
    if (count == 16 && (ulong)line % sizeof(float16) == 0) {
        __builtin_nontemporal_store(x, line);
        return;
    }
#endif
    store_floats((__global float*)row + first, count, x);
}

/* Stores scores of a row, the logits of a stage. Of probabilities these are read again, by sdpa_normalise. */
static inline void store_scores_part(const sdpa_params* p, __global uchar* row, uint key, uint count, float16 s) {
    if (p->scores_mode == SDPA_SCORES_PROBS)
        store_floats((__global float*)row + key, count, s);
    else
        stream_part_f32(row, key, s, count);
}

/* Stores 16 scores of row r, for the keys from `key` of which `count` exist: the logits as they are, with softcap, or
 * with all that is added and -INFINITY where they are not visible. */
static inline void store_scores16(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work, uint r,
                                  uint key, uint count, float16 raw, float16 capped, float16 biased, int16 visible) {
    if (p->scores_mode == SDPA_SCORES_NONE || r >= work->rows) return;
    store_scores_part(p, scores_row(p, memory, work, r), key, count,
                      p->scores_mode == SDPA_SCORES_RAW          ? raw
                      : p->scores_mode == SDPA_SCORES_SOFTCAPPED ? capped
                                                                 : select((float16)(-INFINITY), biased, visible));
}

/* Stores the scores of a whole tile that every row sees, whose logits are the same in every stage.
 * s: [ROWS][TILE_VECTORS]. */
static inline void store_tile_scores(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                     const sdpa_tile* tile, const float16* s) {
    if (p->scores_mode == SDPA_SCORES_NONE) return;
    for (uint r = 0; r < work->rows; ++r) {
        __global uchar* row = scores_row(p, memory, work, r);
        for (uint i = 0; i < TILE_VECTORS; ++i)
            store_scores_part(p, row, tile->key + i * 16, 16, s[r * TILE_VECTORS + i]);
    }
}

/* The scores of a tile that no row sees. */
static inline void store_unseen_scores(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                       const sdpa_tile* tile) {
    if (p->scores_mode == SDPA_SCORES_NONE) return;
    for (uint r = 0; r < work->rows; ++r) {
        __global uchar* row = scores_row(p, memory, work, r);
        for (uint i = 0; i < tile->count; ++i) store_f32(row, tile->key + i, -INFINITY);
    }
}

/* Probabilities from logits, in place, once a row's maximum and sum are known. */
static inline void sdpa_normalise(const sdpa_params* p, __global uchar* row, float maximum, float inverse) {
    for (uint key = 0; key < p->kv_len; key += 16) {
        const uint count = min(p->kv_len - key, 16u);
        __global float* part = (__global float*)row + key;
        const float16 s = load_floats(part, count, 0.0f);
        const float16 probability = select((float16)(0.0f), exp16(s - maximum) * inverse, s != -INFINITY);
        store_floats(part, count, probability);
    }
}
