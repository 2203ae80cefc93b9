/* What the states of groups of many work-items are declared by. Needs before it: sdpa_chunks.h and LANE. */

#define LESSER(a, b) ((a) < (b) ? (a) : (b))
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define POWER_OF_2(n) ((n) <= 1 ? 1 : (n) <= 2 ? 2 : (n) <= 4 ? 4 : (n) <= 8 ? 8 : (n) <= 16 ? 16 : (n) <= 32 ? 32 : 64)

/* What has a lane's registers as an argument. */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

#define Q_FLOATS (K_CHUNKS * 16) /* of a row */
#define V_FLOATS (V_CHUNKS * 16)

/* The lane's row in what goes row by row, where that is below ROWS; ROW_LANES is the state's. */
#define LANE_ROW (LANE / ROW_LANES)
#define LANE_OF_ROW (LANE % ROW_LANES)
