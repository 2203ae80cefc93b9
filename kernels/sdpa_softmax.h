/* The stage "softmax", online: a tile's logits become weights exp(logit - maximum so far), and what was added up with
 * an earlier maximum is to be rescaled. Needs before it: float16_math.h, sdpa_tile.h, sdpa_transform.h, ROWS_TAKEN and
 * ROWS_UNROLLED. */

/* s: [ROWS][TILE_VECTORS], logits before and weights after; maximum, rescale: [ROWS_OF_16]; sum: [ROWS], lane by lane.
 */
static inline void sdpa_softmax(const sdpa_work_tile* work, float16* s, const sdpa_seen* seen, float* maximum,
                                float16* sum, float* rescale) {
    const uint rows = ROWS_TAKEN(work);
    float new_maximum[ROWS_OF_16];
    for (uint r = 0; r < rows; r += 16) vstore16(vload16(0, maximum + r), 0, new_maximum + r);
#pragma unroll ROWS_UNROLLED
    for (uint r = 0; r < rows; ++r) {
        float16 highest = s[r * TILE_VECTORS];
        for (uint i = 1; i < TILE_VECTORS; ++i) highest = larger(s[r * TILE_VECTORS + i], highest);
        const float other = maximum_of_lanes(larger(highest, (float16)(NO_MAXIMUM)));
        new_maximum[r] = other > maximum[r] ? other : maximum[r];
    }
    for (uint r = 0; r < rows; r += 16) {
        vstore16(exp16(vload16(0, maximum + r) - vload16(0, new_maximum + r)), 0, rescale + r);
        vstore16(vload16(0, new_maximum + r), 0, maximum + r);
    }
#pragma unroll ROWS_UNROLLED
    for (uint r = 0; r < rows; ++r) {
        sum[r] *= rescale[r];
        for (uint i = 0; i < TILE_VECTORS; ++i) {
            float16 weight = exp16(s[r * TILE_VECTORS + i] - maximum[r]);
            if (seen->is_partial) weight = select((float16)(0.0f), weight, vload16(r * TILE_VECTORS + i, seen->lanes));
            s[r * TILE_VECTORS + i] = weight;
            sum[r] += weight;
        }
    }
}
