/* sdpa_prefill: attention of many query tokens. "cpu" shape: one work-item per work-group, no barriers, no local
 * memory, vectors of 16 floats.
 *
 *                     keys of one KV head, in blocks of TILE ->
 *                  |  block  |  block  |  block  |
 *     ROWS rows    |  group walks over the blocks |   rows: the query heads that share the KV head, times tokens
 *
 * Per block that any row sees: K transposed to floats [HEAD_SIZE][TILE], V converted to floats [TILE][V chunks];
 * logits by a micro-kernel of 4 rows x 64 keys, the transforms where the block needs them, softmax, and the values
 * by a micro-kernel of 4 rows x 64 elements.
 *
 * Layouts: sdpa_params.h. Needs -D:
 *     SEGMENTS, SLOTS          1 to 4 segments; 1: their rows lie in slots with positions and may lack a mean; 0: one
 *                              segment, and key j lies in row j
 *     STEP, APPEND             0: tokens that are stored and attended over in one launch are sdpa_vector's
 *     K_FORMAT_i, V_FORMAT_i   of segment i, a format each; -DUSES_<format> with it
 *     HEAD_SIZE, V_HEAD_SIZE   elements, 1 .. 576
 *     ROWS                     a multiple of 16
 *     SINGLE_LAUNCH            1: the last group combines the splits; 0: sdpa_combine, a launch of its own, does
 */
#include "one_work_item.h"
#include "sdpa_params.h"

#if !defined(SEGMENTS) || !defined(SLOTS) || !defined(STEP) || !defined(APPEND) || !defined(K_FORMAT_0) ||             \
    !defined(V_FORMAT_0) || !defined(HEAD_SIZE) || !defined(V_HEAD_SIZE) || !defined(ROWS) || !defined(SINGLE_LAUNCH)
#error "sdpa_prefill.cl needs all of the -D that are listed above"
#endif

#define TILE 64

/* The micro-kernels take four rows at a time. */
#define ROWS_TAKEN(work) (((work)->rows + 3) & ~3u)
#define ROWS_UNROLLED 1

#include "sdpa_stages.h"

/* Columns j of 16 vectors to vectors: four rounds of interleaving x[i] with x[i + 8]. */
static inline void transpose16(float16* x) {
    float16 y[16];
#pragma unroll
    for (uint round = 0; round < 4; ++round) {
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            y[2 * i] = SHUFFLE(x[i], x[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
            y[2 * i + 1] = SHUFFLE(x[i], x[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
        }
#pragma unroll
        for (uint i = 0; i < 16; ++i) x[i] = y[i];
    }
}

/* Four rows' logits with all keys of the block. q: [4][HEAD_SIZE], s: [4][TILE_VECTORS]. */
static inline void dot_4_rows(const float* q, const float16* kt, float scale, float16* s) {
    float16 sum[4][TILE_VECTORS];
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint i = 0; i < TILE_VECTORS; ++i) sum[r][i] = (float16)(0.0f);
    for (uint d = 0; d < HEAD_SIZE; ++d) {
#pragma unroll
        for (uint i = 0; i < TILE_VECTORS; ++i) {
            const float16 x = kt[d * TILE_VECTORS + i];
#pragma unroll
            for (uint r = 0; r < 4; ++r) sum[r][i] = fma((float16)(q[r * HEAD_SIZE + d]), x, sum[r][i]);
        }
    }
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint i = 0; i < TILE_VECTORS; ++i) s[r * TILE_VECTORS + i] = scale * sum[r][i];
}

/* Adds weight x value of `count` keys to `size` chunks, from `chunk`, of four rows' accumulators, after scaling them.
 * accumulator: [4][V_CHUNKS], weights: [4][TILE], values: [TILE][V_CHUNKS]. */
static inline void add_chunks_4_rows(float16* accumulator, const float* rescale, const float* weights,
                                     const float16* values, uint count, uint chunk, const uint size) {
    float16 sum[4][4];
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) sum[r][c] = accumulator[r * V_CHUNKS + chunk + c] * rescale[r];
    for (uint t = 0; t < count; ++t) {
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            const float16 x = values[t * V_CHUNKS + chunk + c];
#pragma unroll
            for (uint r = 0; r < 4; ++r) sum[r][c] = fma((float16)(weights[r * TILE + t]), x, sum[r][c]);
        }
    }
#pragma unroll
    for (uint r = 0; r < 4; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) accumulator[r * V_CHUNKS + chunk + c] = sum[r][c];
}

static inline void add_values_4_rows(float16* accumulator, const float* rescale, const float* weights,
                                     const float16* values, uint count) {
    for (uint c = 0; c + 4 <= V_CHUNKS; c += 4) add_chunks_4_rows(accumulator, rescale, weights, values, count, c, 4);
    if (V_CHUNKS % 4) add_chunks_4_rows(accumulator, rescale, weights, values, count, V_CHUNKS / 4 * 4, V_CHUNKS % 4);
}

/* Adds values that are not all finite, for one row: those that the row does not see must not reach it, not even
 * as 0 x NaN. lanes: [TILE], as in sdpa_seen. */
static inline void add_seen_values_1_row(float16* accumulator, float rescale, const float* weights, const int* lanes,
                                         const float16* values, uint count) {
    for (uint c = 0; c < V_CHUNKS; ++c) {
        float16 sum = accumulator[c] * rescale;
        for (uint t = 0; t < count; ++t)
            sum = fma((float16)(weights[t]), as_float16(as_int16(values[t * V_CHUNKS + c]) & lanes[t]), sum);
        accumulator[c] = sum;
    }
}

#define SEGMENT_CODE "sdpa_prefill_segment.h"
#include "sdpa_every_segment.h"
#include "sdpa_attend.h"

ONE_WORK_ITEM __kernel void sdpa_prefill(PARAMS(sdpa_params), ATTEND_ARGUMENTS, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(sdpa_params);
    const sdpa_memory memory = {ATTEND_MEMORY};
    attend(&p, &memory, (uint)get_group_id(0) + group_base);
}

#if !SINGLE_LAUNCH
#include "sdpa_combine.h"
#endif
