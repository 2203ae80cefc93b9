/* The local memory of a group of many work-items. Needs before it: sdpa_group_lanes.h, sdpa_work_tile.h,
 * local_tables.h, TILE and GROUP_SIZE. */

/* The lanes of a row in what goes row by row. */
#define LANES_FOR_A_ROW (GROUP_SIZE / (ROWS > 4 ? 8 : 4))
#define MOST_ROW_LANES (SUBGROUP_SIZE == 0 || SUBGROUP_SIZE > 32 ? 32 : SUBGROUP_SIZE)
#define ROW_LANES (LANES_FOR_A_ROW < MOST_ROW_LANES ? LANES_FOR_A_ROW : MOST_ROW_LANES)

/* Keys of which a lane has pieces at once, if their parts fit: as many as there are registers for. */
#define KEYS_AT_ONCE (ROWS == 1 ? 8 : 4)

/* Rows whose inner products a group has at once, and floats for the parts of these. */
#define DOT_ROWS (ROWS <= 4 ? ROWS : (ROWS + 1) / 2)
#if SUBGROUP_SIZE
#define PARTS_FLOATS (GROUP_SIZE * 2 * LESSER(ROWS * 2, 8))
#else
#define PARTS_FLOATS (DOT_ROWS * GROUP_SIZE * 5)
#endif

typedef struct group_state {
    /* Without subgroups twice [K_BATCH][DOT_ROWS][PART_STRIDE]: parts of inner products. At a segment's end what lanes
     * give others. This and what else is read four floats at a time is aligned for that. */
    float parts[2][PARTS_FLOATS] __attribute__((aligned(16)));
    union {
        float q[ROWS * Q_FLOATS] __attribute__((aligned(16))); /* [ROWS][Q_FLOATS], as the keys want to meet it */
        float part_of[ROWS * V_FLOATS]; /* [ROWS][V_FLOATS]: what the group has of a segment when it has seen it */
    } of_segment;
    float accumulator[ROWS * V_FLOATS] __attribute__((aligned(16))); /* of all segments so far */
    float s[ROWS * TILE] __attribute__((
        aligned(16))); /* [ROWS][TILE]: what the mask adds, logits, weights; -INFINITY, or weights below 0: hidden */
    float by_lane[GROUP_SIZE] __attribute__((aligned(16))); /* a number of each lane, to be joined */
    float maximum[ROWS], sum[ROWS], rescale[ROWS], from_mean[ROWS];
    float segment_maximum[ROWS], segment_sum[ROWS];
    uint skipped[ROWS];
    int position[TILE];
    int seen[TILE];         /* by some row; IS_SKIPPED: and its value is not added */
    int is_any, is_partial; /* of a tile: some row sees a key; not all rows see the same */
    int is_last;            /* the group is the last of its work tile */
    float lookup_tables[LOOKUP_FLOATS];
#if TENSOR_CORES
    uint tensor_tables[LOOKUP_AT_IQ4_NL_VALUES];
#endif
    sdpa_work_tile work;
} group_state;

#define IS_SKIPPED 2

/* A lane's sums, `count` times 8 floats, each half a group from the next, for another lane to take. */
#define GIVEN_APART (GROUP_SIZE / 2)

ALWAYS_INLINE void give_floats(__local float* to, const float8* sums, const uint count) {
#pragma unroll
    for (uint i = 0; i < count; ++i) {
        float x[8];
        vstore8(sums[i], 0, x);
#pragma unroll
        for (uint e = 0; e < 8; ++e) to[(i * 8 + e) * GIVEN_APART] = x[e];
    }
}

ALWAYS_INLINE void take_floats(const __local float* from, float8* sums, const uint count) {
#pragma unroll
    for (uint i = 0; i < count; ++i) {
        const __local float* x = from + i * 8 * GIVEN_APART;
        sums[i] += (float8)(x[0], x[GIVEN_APART], x[2 * GIVEN_APART], x[3 * GIVEN_APART], x[4 * GIVEN_APART],
                            x[5 * GIVEN_APART], x[6 * GIVEN_APART], x[7 * GIVEN_APART]);
    }
}
