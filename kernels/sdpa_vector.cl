/* sdpa_vector: attention of a few query tokens, the decode step. "cpu" shape: one work-item per work-group, no
 * barriers, no local memory, vectors of 16 floats.
 *
 *                     keys of one KV head ->
 *                  |  split 0  |  split 1  |  ...
 *     ROWS rows    |  group    |  group    |         rows: the query heads that share the KV head, times query tokens
 *
 * A group walks over its keys in tiles of TILE. Per tile: ROWS x TILE logits, each K vector loaded once for all
 * rows; the transforms, only where the tile needs them; softmax over the tile; then the values, in slices of a row
 * so that the sums stay in registers. Under a threshold only the runs of values whose weights matter to some row.
 *
 * Layouts: sdpa_params.h. Needs -D:
 *     SEGMENTS, SLOTS          1 to 4 segments; 1: their rows lie in slots with positions and may lack a mean; 0: one
 *                              segment, and key j lies in row j
 *     STEP                     1: a step of decoding, which also appends a token and accumulates importance; SLOTS: 1
 *     STATISTIC                with STEP: of slot_accumulate.cl; 0: no importance is kept
 *     APPEND                   1: a token is stored before the attention; SEGMENTS: 1, SLOTS and STEP: 0
 *     K_FORMAT_i, V_FORMAT_i   of segment i, a format each; -DUSES_<format> with it
 *     HEAD_SIZE, V_HEAD_SIZE   elements, 1 .. 576
 *     ROWS                     1 .. 6 or 8
 *     ENTRIES                  1: memory by address, for one sequence, or for several with PARAMS_IN_MEMORY
 *                              (sdpa_entries.h); STEP, SLOTS and SINGLE_LAUNCH: 1. 0 where it is not given
 *     SINGLE_LAUNCH            1: the last group combines the splits; 0: sdpa_combine, a launch of its own, does
 */
#include "one_work_item.h"
#include "sdpa_params.h"

#if !defined(SEGMENTS) || !defined(SLOTS) || !defined(STEP) || !defined(APPEND) || !defined(K_FORMAT_0) ||             \
    !defined(V_FORMAT_0) || !defined(HEAD_SIZE) || !defined(V_HEAD_SIZE) || !defined(ROWS) || !defined(SINGLE_LAUNCH)
#error "sdpa_vector.cl needs all of the -D that are listed above"
#endif
#if defined(ENTRIES) && ENTRIES && !(SLOTS && STEP && SINGLE_LAUNCH)
#error "sdpa_vector.cl with ENTRIES needs SLOTS, STEP and SINGLE_LAUNCH"
#endif
#if STEP && !defined(STATISTIC)
#error "sdpa_vector.cl with STEP needs -D STATISTIC"
#endif

#ifndef ENTRIES
#define ENTRIES 0
#endif

#ifndef TILE
#define TILE 32
#endif

/* All rows, so that loops over them are unrolled: those past the last one repeat it. */
#define ROWS_TAKEN(work) ROWS
#define ROWS_UNROLLED ROWS

#include "sdpa_stages.h"

/* Keys between a use and the prefetches for it, as far as the split reaches. Only packed rows are asked for twice:
 * of dense ones, which are longer, the second request cost more than it brought. */
#define NEAR TILE
#define FAR 64
static inline long near_keys(const sdpa_work_tile* work, const sdpa_tile* tile) {
    return tile->key + TILE + NEAR <= work->key_end ? NEAR : 0;
}
static inline long far_keys(const sdpa_work_tile* work, const sdpa_tile* tile) {
    return tile->key + TILE + FAR <= work->key_end ? FAR : near_keys(work, tile);
}

/* Rows whose sums for four tokens fit the registers together. */
#define ROWS_AT_ONCE (ROWS <= 6 ? ROWS : 4)

/* Keys whose chunks are read by turns, so that a chunk of Q serves them all. One row's elements of Q fit the registers,
 * and dense keys come sooner one after the other: the hardware's own requests follow a walk in one direction. */
#define KEYS_ABREAST (ROWS == 1 && !K_PACKED ? 1 : 4)

/* Chunks of V whose sums for all rows fit the registers together. */
#ifndef SLICE
#define SLICE (ROWS == 1 ? 8 : ROWS <= 5 ? 4 : ROWS <= 6 && !V_PACKED ? 3 : 2)
#endif

/* Chunks of a key that the loop over them takes at once: with packed ones, where they lie should be a constant. */
#define CHUNKS_AT_ONCE (K_PACKED || KEYS_ABREAST == 1 ? 8 : 2)

/* Slices of a row that a loop takes at once. */
#define SLICES_UNROLLED (V_CHUNKS <= 16 ? 16 : 1)

/* Which of the values in `used` are read under a threshold: those whose weight is not below the limit in every row, and
 * single ones between two of these, because a run of its own costs more. A weight below the threshold's share of the
 * sum so far is below that of the whole. Counts for each row the values that it sees and that are not read. weights:
 * [ROWS][TILE], sum: [ROWS]. */
static inline key_set find_read(const sdpa_params* p, key_set used, const float16* weights, const float16* sum,
                                const sdpa_seen* seen, uint* skipped) {
    float limits[ROWS];
    for (uint r = 0; r < ROWS; ++r) limits[r] = p->v_threshold * BELOW_ROUNDING * sum_of_lanes(sum[r]);
    key_set read = 0, visible[ROWS];
    for (uint r = 0; r < ROWS; ++r) visible[r] = 0;
    for (uint i = 0; i < TILE_VECTORS; ++i) {
        int16 above = (int16)(0);
        for (uint r = 0; r < ROWS; ++r) {
            const int16 shown = seen->is_partial ? vload16(r * TILE_VECTORS + i, seen->lanes) : (int16)(-1);
            above |= ~(weights[r * TILE_VECTORS + i] < limits[r]) & shown;
            if (seen->is_partial) visible[r] |= bits_of_lanes(shown) << i * 16;
        }
        read |= bits_of_lanes(above) << i * 16;
    }
    read = (read | (read << 1 & read >> 1)) & used;
    for (uint r = 0; r < ROWS; ++r) skipped[r] += popcount((seen->is_partial ? visible[r] : used) & ~read);
    return read;
}

#define SEGMENT_CODE "sdpa_vector_segment.h"
#include "sdpa_every_segment.h"
#include "sdpa_attend.h"

#if ENTRIES
#include "sdpa_entries.h"

ONE_WORK_ITEM __kernel void sdpa_vector(PARAMS(sdpa_entry), uint group_base) {
    if (group_base == 0xffffffffu) return; /* as below */
    uint group = (uint)get_group_id(0) + group_base;
#ifdef PARAMS_IN_MEMORY
    for (; group >= params_in_memory->groups; ++params_in_memory) group -= params_in_memory->groups;
#endif
    GET_PARAMS(sdpa_entry);
    attend_entry(&p, group);
}
#else
ONE_WORK_ITEM __kernel void sdpa_vector(PARAMS(sdpa_params), ATTEND_ARGUMENTS, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(sdpa_params);
    const sdpa_memory memory = {ATTEND_MEMORY};
    attend(&p, &memory, (uint)get_group_id(0) + group_base);
}
#endif

#if !SINGLE_LAUNCH
#include "sdpa_combine.h"
#endif
