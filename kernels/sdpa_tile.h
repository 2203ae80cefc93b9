/* A tile of sdpa_vector: its keys as bits, and what is said of the factors of its packed rows, whatever the segment's
 * formats are. Needs before it: sdpa_chunks.h, sdpa_rows.h, ROWS, TILE (up to 32) and TILE_VECTORS. */

/* Groups of a packed row whose elements share a factor; a dense row counts as one. */
#define K_GROUPS (HEAD_SIZE / K_GROUP)
#define V_GROUPS (V_HEAD_SIZE / V_GROUP)
#define GROUP_OF_CHUNK(chunk) ((chunk)*16 / V_GROUP)
#define HALVES_OF_A_TILE ((K_GROUPS > V_GROUPS ? K_GROUPS : V_GROUPS) * TILE)

/* Of a tile's keys: their factors or biases, as stage_halves takes them. */
#define STAGE(numbers, format, what, n, groups, rows, stride, read)                                                    \
    stage_halves(numbers, groups, rows, stride, read, JOIN(what, format)(n, 0),                                        \
                 JOIN(what, format)(n, 1) - JOIN(what, format)(n, 0))

/* All, or the first `count`, keys of a tile as bits. */
#define BITS_OF_TILE(count) ((count) == 32 ? 0xffffffffu : (1u << (count)) - 1)

static inline uint bits_of_lanes(int16 all_or_none) {
    const int16 x = all_or_none & LANE_BITS;
    const int8 x8 = x.lo | x.hi;
    const int4 x4 = x8.lo | x8.hi;
    return (uint)(x4.x | x4.y | x4.z | x4.w);
}

#if defined(HAS_AVX512_BUILTINS)
#if __has_builtin(__builtin_ia32_gathersiv16si)
#define GATHERS
#endif
#endif
