/* The local memory of a group of many work-items. Needs before it: sdpa_chunks.h, sdpa_work_tile.h, local_tables.h,
 * TILE, GROUP_SIZE and LANE. */

/* The lanes of a row in what goes row by row: row LANE / ROW_LANES, where that is below ROWS. */
#define LANES_FOR_A_ROW (GROUP_SIZE / (ROWS > 4 ? 8 : 4))
#define MOST_ROW_LANES (SUBGROUP_SIZE == 0 || SUBGROUP_SIZE > 32 ? 32 : SUBGROUP_SIZE)
#define ROW_LANES (LANES_FOR_A_ROW < MOST_ROW_LANES ? LANES_FOR_A_ROW : MOST_ROW_LANES)
#define LANE_ROW (LANE / ROW_LANES)
#define LANE_OF_ROW (LANE % ROW_LANES)

#define LESSER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define POWER_OF_2(n) ((n) <= 1 ? 1 : (n) <= 2 ? 2 : (n) <= 4 ? 4 : (n) <= 8 ? 8 : (n) <= 16 ? 16 : (n) <= 32 ? 32 : 64)

/* Keys of which a lane has pieces at once, if their parts fit: as many as there are registers for. */
#define KEYS_AT_ONCE (ROWS == 1 ? 8 : 4)

/* Rows whose inner products a group has at once, and floats for the parts of these. */
#define DOT_ROWS (ROWS <= 4 ? ROWS : (ROWS + 1) / 2)
#if SUBGROUP_SIZE
#define PARTS_FLOATS (GROUP_SIZE * 2 * LESSER(ROWS * 2, 8))
#else
#define PARTS_FLOATS (DOT_ROWS * GROUP_SIZE * 5)
#endif

/* What has a lane's registers as an argument. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define Q_FLOATS (K_CHUNKS * 16) /* of a row */
#define V_FLOATS (V_CHUNKS * 16)

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

/* Every work-item gives a number; every one of a row's lanes gets their sum, or the largest. All work-items call them;
 * each begins and ends with a barrier. */
#define JOIN_LANES(g, mine, result, joined)                                                                            \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    (g)->by_lane[LANE] = (mine);                                                                                       \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                                      \
    const __local float4* fours = (const __local float4*)((g)->by_lane + LANE_ROW * ROW_LANES);                        \
    for (uint i = 0; i < ROW_LANES / 4; ++i) {                                                                         \
        const float4 other = fours[i];                                                                                 \
        (result) = (joined);                                                                                           \
    }                                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE)

#if SUBGROUP_SIZE
static inline float sum_of_row(__local group_state* g, float x) {
#pragma unroll
    for (uint bit = ROW_LANES / 2; bit > 0; bit /= 2) x += shuffle_xor(x, bit);
    return x;
}

static inline uint count_of_row(__local group_state* g, uint x) {
#pragma unroll
    for (uint bit = ROW_LANES / 2; bit > 0; bit /= 2) x += as_uint(shuffle_xor(as_float(x), bit));
    return x;
}

static inline float maximum_of_row(__local group_state* g, float x) {
#pragma unroll
    for (uint bit = ROW_LANES / 2; bit > 0; bit /= 2) {
        const float other = shuffle_xor(x, bit);
        x = other > x ? other : x;
    }
    return x;
}
#else
static inline float sum_of_row(__local group_state* g, float x) {
    float4 sums = (float4)(0.0f);
    JOIN_LANES(g, x, sums, sums + other);
    return (sums.x + sums.y) + (sums.z + sums.w);
}

static inline uint count_of_row(__local group_state* g, uint x) {
    uint4 counts = (uint4)(0);
    JOIN_LANES(g, as_float(x), counts, counts + as_uint4(other));
    return (counts.x + counts.y) + (counts.z + counts.w);
}

static inline float maximum_of_row(__local group_state* g, float x) {
    float4 maxima = (float4)(x);
    JOIN_LANES(g, x, maxima, select(maxima, other, other > maxima));
    const float low = maxima.y > maxima.x ? maxima.y : maxima.x, high = maxima.w > maxima.z ? maxima.w : maxima.z;
    return high > low ? high : low;
}
#endif

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
