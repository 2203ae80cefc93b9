/* The local memory of a group of sdpa_prefill_workgroup.cl, and which part of a tile each lane has. Needs before it:
 * sdpa_group_lanes.h, sdpa_work_tile.h, local_tables.h, TILE and GROUP_SIZE. */

/* The grid of 8 x 16 lanes. Of 32 lanes side by side 8 meet the same rows, and 4 the same keys or values, so that what
 * they read of local memory at once are few places. */
#define GRID_ROW (LANE / 8 % 4 + LANE / 64 * 4)
#define GRID_COLUMN (LANE % 8 + LANE / 32 % 2 * 8)
#define LANE_ROWS (ROWS / 8)  /* GRID_ROW + 8 i */
#define LANE_KEYS (TILE / 16) /* GRID_COLUMN + 16 i */

/* The lanes of a row in the softmax. */
#define ROW_LANES (GROUP_SIZE / ROWS)

/* Rows of Q, of logits and of a stage of keys: whole runs of 4 elements, an odd number of them from row to row, so that
 * rows side by side lie in different banks. Q has zeros behind its elements. */
#define K_STAGE 32
#define Q_PADDED ((HEAD_SIZE + K_STAGE - 1) / K_STAGE * K_STAGE)
#define Q_STRIDE (Q_PADDED + 4)
#define S_STRIDE (TILE + 4)
#define K_STAGE_STRIDE (K_STAGE + 4)

/* Values are taken in passes of 128 elements, the last one of 64 where that suffices: runs of 4 that a lane has. */
#define V_PASSES ((V_HEAD_SIZE + 127) / 128)
#define V_RUNS ((V_HEAD_SIZE + 63) / 64)
#define RUNS_OF_PASS(pass) LESSER(2, V_RUNS - (pass)*2)

/* Of a pass of that many runs: elements, keys of a stage (it has 128 chunks of 16 elements, one for each lane), and
 * floats from key to key. */
#define V_STAGE(runs) ((runs)*64)
#define V_STAGE_KEYS(runs) (GROUP_SIZE * 16 / V_STAGE(runs))
#define V_STAGE_STRIDE(runs) ((runs) == 1 ? 80 : 128)

/* Within a stage run i of chunk c is run i * chunks + c, so that lanes side by side store, and read, runs side by side.
 */
#define V_CHUNKS_OF(runs) ((runs)*4)
#define V_ELEMENT_OF(runs, run) ((run) % V_CHUNKS_OF(runs) * 16 + (run) / V_CHUNKS_OF(runs) * 4)

/* The first element of a lane's i-th run of all. */
#define ELEMENT_OF_RUN(i) ((i) / 2 * 128 + V_ELEMENT_OF(RUNS_OF_PASS((i) / 2), GRID_COLUMN + (i) % 2 * 16))

/* The largest: 32 values of 64 elements, or all keys; logits of a tile are less. */
#define STAGE_FLOATS (V_RUNS % 2 ? 32 * 80 : TILE * K_STAGE_STRIDE)
#define PARTS_FLOATS (ROWS * S_STRIDE)

typedef struct group_state {
    /* [ROWS][Q_STRIDE]: Q as the keys want to meet it; when there are no more keys [ROWS][V_FLOATS]: sums of values.
     * What is read four floats at a time is aligned for that. */
    float accumulator[LARGER(ROWS * Q_STRIDE, ROWS* V_FLOATS)] __attribute__((aligned(16)));
    /* [ROWS][S_STRIDE]: what the mask adds, logits (-INFINITY: hidden), weights; in the end what combining needs */
    float parts[1][PARTS_FLOATS] __attribute__((aligned(16)));
    float stage[STAGE_FLOATS] __attribute__((aligned(16))); /* a part of K or of V, or logits */
    float by_lane[GROUP_SIZE] __attribute__((aligned(16))); /* a number of each lane, to be joined */
    ulong mask_at[ROWS];                                    /* where a row's mask begins */
    float maximum[ROWS], sum[ROWS], rescale[ROWS], from_mean[ROWS];
    float segment_maximum[ROWS], segment_sum[ROWS];
    float segment_weights[SEGMENTS][ROWS]; /* the sums of each segment's weights */
    uint skipped[ROWS];
    int position[TILE];
    /* Of a tile and of the one before: some row sees a key; a key is hidden from some row, or the mask adds to it. */
    int is_any[2], is_unlike[2];
    int is_special; /* a value that was read of the tile is infinite, or no number */
    int is_last;    /* the group is the last of its work tile */
    float lookup_tables[LOOKUP_FLOATS];
    sdpa_work_tile work;
} group_state;

/* What a lane carries from tile to tile beside its sums of values: of its row in the softmax. */
typedef struct prefill_lane {
    float maximum; /* the row's */
    float sum;     /* of the weights of this lane's keys of the segment */
    uint turn;     /* which of the two is_any is the next tile's */
} prefill_lane;

/* Brings the sums of values into local memory; it begins and ends with a barrier. All places in an accumulator are
 * constants, so that it lies in registers. */
ALWAYS_INLINE void leave_accumulator(__local group_state* g, const float4* accumulator) {
    barrier(CLK_LOCAL_MEM_FENCE);
#pragma unroll
    for (uint i = 0; i < V_RUNS; ++i) {
        const uint e = ELEMENT_OF_RUN(i);
        if (e >= V_FLOATS) continue;
#pragma unroll
        for (uint r = 0; r < LANE_ROWS; ++r)
            vstore4(accumulator[i * LANE_ROWS + r], 0, g->accumulator + (GRID_ROW + r * 8) * V_FLOATS + e);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

/* The other way. */
ALWAYS_INLINE void take_accumulator(const __local group_state* g, float4* accumulator) {
#pragma unroll
    for (uint i = 0; i < V_RUNS; ++i) {
        const uint e = ELEMENT_OF_RUN(i);
        if (e >= V_FLOATS) continue;
#pragma unroll
        for (uint r = 0; r < LANE_ROWS; ++r)
            accumulator[i * LANE_ROWS + r] = vload4(0, g->accumulator + (GRID_ROW + r * 8) * V_FLOATS + e);
    }
}
