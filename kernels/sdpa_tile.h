/* A tile of keys: TILE of them or, at the end of a split, fewer, which are taken in vectors of 16. Needs before it:
 * vector_lanes.h and TILE: 16, 32 or 64. */
#define TILE_VECTORS (TILE / 16)

typedef struct sdpa_tile {
    uint key; /* the first one, in the segment */
    uint count;
} sdpa_tile;

/* How many of the tile's keys lie in its vector i. */
static inline uint part_of_tile(uint count, uint i) { return count > i * 16 ? min(count - i * 16, 16u) : 0; }

/* Some of a tile's keys, a bit each. */
#if TILE > 32
typedef ulong key_set;
#else
typedef uint key_set;
#endif
#define KEY_SET_BITS (8 * (uint)sizeof(key_set))

/* All, or the first `count`, keys of a tile. */
#define BITS_OF_TILE(count) ((count) == KEY_SET_BITS ? ~(key_set)0 : ((key_set)1 << (count)) - 1)

/* How many keys there are up to the last one of the set. */
static inline uint end_of_set(key_set keys) { return KEY_SET_BITS - (uint)clz(keys); }

/* What the rows of a work tile see of a tile of keys. sdpa_classify says what it can before there are logits, and
 * sdpa_transform the rest. */
typedef struct sdpa_seen {
    int all, none;          /* of classify: every row sees every key; no row sees any */
    key_set by_any, by_all; /* the keys that some row sees, that every row sees */
    int is_partial;         /* a key, or its place in the tile, is hidden from some row: `lanes` are filled and count */
    int* lanes;             /* [ROWS][TILE]: -1 where the row sees the key, else 0 */
} sdpa_seen;
