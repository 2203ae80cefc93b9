/* The local memory of a group of many work-items. Needs before it: sdpa_chunks.h, sdpa_work_tile.h, local_rows.h, TILE,
 * GROUP_SIZE and LANE. */

/* The lanes of a row in what goes row by row: row LANE / ROW_LANES, where that is below ROWS. */
#define LANES_FOR_A_ROW (GROUP_SIZE / (ROWS > 4 ? 8 : 4))
#define ROW_LANES (LANES_FOR_A_ROW < 32 ? LANES_FOR_A_ROW : 32)
#define LANE_ROW (LANE / ROW_LANES)
#define LANE_OF_ROW (LANE % ROW_LANES)

/* Bytes for a batch of rows: 64 of 128 halves, and their padding. A batch has as many keys as fit, a power of two. */
#define POOL_BYTES (GROUP_SIZE * 136)
#define LESSER(a, b) ((a) < (b) ? (a) : (b))
#define BATCH_THAT_FITS(is_packed, row_bytes, size)                                                                    \
    LARGEST_POWER_OF_2(POOL_BYTES / LOCAL_ROW_BYTES(is_packed, row_bytes, size))
#define BATCH_OF(is_packed, row_bytes, size) LESSER(BATCH_THAT_FITS(is_packed, row_bytes, size), TILE)

/* What has a lane's registers as an argument. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define Q_FLOATS (K_CHUNKS * 16) /* of a row */
#define V_FLOATS (V_CHUNKS * 16)

typedef struct group_state {
    uint4 pool[POOL_BYTES / 16]; /* rows; at a segment's end what the lanes add up */
    union {
        float q[ROWS * Q_FLOATS];       /* [ROWS][Q_FLOATS], as the segment's keys want to meet it */
        float part_of[ROWS * V_FLOATS]; /* [ROWS][V_FLOATS]: what the group has of a segment, when it has seen it */
    } of_segment;
    float parts[ROWS * GROUP_SIZE];     /* [ROWS][KEY_LANES][K_BATCH]: of inner products */
    float accumulator[ROWS * V_FLOATS]; /* of all segments so far */
    float s[ROWS * TILE]; /* [ROWS][TILE]: what the mask adds, logits, weights; -INFINITY, or weights below 0: hidden */
    float by_lane[GROUP_SIZE]; /* a number of each lane, to be joined */
    float maximum[ROWS], sum[ROWS], rescale[ROWS], from_mean[ROWS];
    float segment_maximum[ROWS], segment_sum[ROWS];
    uint skipped[ROWS];
    int position[TILE];
    int seen[TILE];         /* by some row; IS_SKIPPED: and its value is not added */
    int is_any, is_partial; /* of a tile: some row sees a key; not all rows see the same */
    int is_last;            /* the group is the last of its work tile */
    float lookup_tables[LOOKUP_FLOATS];
    sdpa_work_tile work;
} group_state;

#define IS_SKIPPED 2

/* Every work-item gives a number; every one of a row's lanes gets their sum, or the largest. All work-items call them;
 * each begins and ends with a barrier. */
#define JOIN_LANES(g, mine, result, joined)                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    (g)->by_lane[LANE] = (mine);                                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    for (uint i = 0; i < ROW_LANES; ++i) {                                                                             \
        const float other = (g)->by_lane[LANE_ROW * ROW_LANES + i];                                                    \
        (result) = (joined);                                                                                           \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE)

static inline float sum_of_row(__local group_state* g, float x) {
    float sum = 0.0f;
    JOIN_LANES(g, x, sum, sum + other);
    return sum;
}

static inline uint count_of_row(__local group_state* g, uint x) {
    uint count = 0;
    JOIN_LANES(g, as_float(x), count, count + as_uint(other));
    return count;
}

static inline float maximum_of_row(__local group_state* g, float x) {
    float maximum = x;
    JOIN_LANES(g, x, maximum, other > maximum ? other : maximum);
    return maximum;
}
