/* sdpa_vector, the shapes "workgroup" and "subgroup": many work-items to a group, local memory and barriers, OpenCL C
 * 1.2 but for what subgroups need. It is written for GPUs; what a group does, its work tiles and splits are those of
 * sdpa_vector.cl.
 *
 * A group walks over its keys in tiles of TILE. Rows of K and V are read once for all rows of Q, in loads of 16 bytes
 * side by side:
 *
 *     logits    a lane takes a piece of some keys, and has Q for it in registers; a key's parts are added up through
 *               local memory, or among the lanes of a subgroup
 *     softmax   a lane takes some keys of one row
 *     values    a lane takes a piece of some values, and has its sums for all rows in registers
 *
 * With tensor cores whole segments go another way (sdpa_tensor_segment.h).
 *
 * Needs the -D of sdpa_vector.cl, and GROUP_SIZE: work-items of a group, a power of two, TILE at least. For subgroups
 * SUBGROUP_SIZE: 16, 32 or 64; with it SUBGROUP_PTX: they exchange by NVIDIA's assembler; and TENSOR_CORES=1, of 32:
 * they multiply small matrices, by one instruction with SUBGROUP_PTX and by computing without. */
#if !defined(SEGMENTS) || !defined(SLOTS) || !defined(STEP) || !defined(APPEND) || !defined(K_FORMAT_0) ||             \
    !defined(V_FORMAT_0) || !defined(HEAD_SIZE) || !defined(V_HEAD_SIZE) || !defined(ROWS) ||                          \
    !defined(SINGLE_LAUNCH) || !defined(GROUP_SIZE)
#error "sdpa_vector_workgroup.cl needs all of the -D that are listed above"
#endif
#if STEP && !defined(STATISTIC)
#error "sdpa_vector_workgroup.cl with STEP needs -D STATISTIC"
#endif

#define WORK_SPACE __local
#define TILE 128
#if GROUP_SIZE < TILE
#error "a group has a work-item for each key of a tile"
#endif

#ifdef SUBGROUP_SIZE
#include "subgroup.h"
#else
#define SUBGROUP_SIZE 0
#define LANE ((uint)get_local_id(0))
#define ONE_SUBGROUP_SIZE
#endif
#ifndef TENSOR_CORES
#define TENSOR_CORES 0
#endif
#include "params_argument.h"
#include "sdpa_params.h"
#include "local_tables.h"
#include "formats.h"
#include "local_tables_fill.h"
#include "format_any.h"
#include "float16_math.h"
#include "rotation.h"
#include "vector_lanes.h"
#include "dense_pieces.h"
#if TENSOR_CORES
#include "tensor_cores.h"
#include "tensor_formats.h"
#endif
#include "local_rotation.h"
#include "sdpa_segment_names.h"
#include "sdpa_formats.h"
#include "sdpa_chunks.h"
#include "sdpa_memory.h"
#include "sdpa_work_tile.h"
#include "sdpa_tensor_rows.h"
#if STEP || APPEND
#include "kv_rows.h"
#endif
#if STEP
#include "slot_statistic.h"
#endif
#include "sdpa_append.h"
#include "sdpa_carried.h"
#include "sdpa_finish_row.h"
#include "sdpa_group_lanes.h"
#include "sdpa_group_state.h"
#include "sdpa_group_join.h"
#include "sdpa_group_importance.h"
#include "sdpa_group_shown.h"
#include "sdpa_group_tile.h"
#define SEGMENT_CODE "sdpa_group_segment.h"
#include "sdpa_every_segment.h"
#include "sdpa_group_end.h"

#define ONE_GROUP __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1))) ONE_SUBGROUP_SIZE

/* What attention begins with; the second of two launches needs the work tile alone. */
ALWAYS_INLINE void begin_attention(__local group_state* g) {
    fill_lookup_tables(g->lookup_tables);
    for (uint r = LANE; r < ROWS; r += GROUP_SIZE) {
        g->maximum[r] = NO_MAXIMUM;
        g->sum[r] = 0.0f;
        g->skipped[r] = 0;
    }
    for (uint i = LANE; i < ROWS * V_FLOATS; i += GROUP_SIZE) g->accumulator[i] = 0.0f;
}

/* Adds what is in of_segment.part_of, segment_maximum and segment_sum: what the group has of a segment. */
ALWAYS_INLINE void group_merge(__local group_state* g) {
    for (uint r = LANE; r < ROWS; r += GROUP_SIZE) group_join_row(g, r);
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = LANE; i < ROWS * V_FLOATS; i += GROUP_SIZE)
        g->accumulator[i] =
            fma(g->of_segment.part_of[i], g->from_mean[i / V_FLOATS], g->accumulator[i] * g->rescale[i / V_FLOATS]);
    barrier(CLK_LOCAL_MEM_FENCE);
}

#if SEGMENTS == 1
#define ATTEND_SEGMENT(i)                                                                                              \
    attend_segment_##i(p, memory, g);                                                                                  \
    group_merge(g);
#else
#define ATTEND_SEGMENT(i)                                                                                              \
    if (sdpa_has_keys_of(&p->segment[i], &g->work, begin, end)) {                                                      \
        if (LANE == 0) sdpa_turn_to(&g->work, &p->segment[i], begin, end);                                             \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        attend_segment_##i(p, memory, g);                                                                              \
        group_merge(g);                                                                                                \
    }
#endif

ALWAYS_INLINE void attend(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint group_number) {
    if (LANE == 0) sdpa_work_tile_init(&g->work, p, memory, group_number, p->splits);
    begin_attention(g);
    barrier(CLK_LOCAL_MEM_FENCE);
#if TENSOR_CORES && defined(USES_CENTROIDS)
    fill_tensor_tables(g->tensor_tables, g->lookup_tables); /* barriers follow before a segment is read */
#endif
    sdpa_append(p, memory, &g->work);
#if STEP || APPEND
    barrier(CLK_GLOBAL_MEM_FENCE);
#endif
#if SEGMENTS > 1
    const uint begin = g->work.key_begin, end = g->work.key_end;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    DO_EVERY_SEGMENT(ATTEND_SEGMENT)
#if SEGMENTS > 1
    if (LANE == 0) g->work.first_score = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    group_leave_result(p, memory, g);
}

ONE_GROUP __kernel void sdpa_vector(PARAMS(sdpa_params), ATTEND_ARGUMENTS, uint group_base) {
    __local group_state g;
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(sdpa_params);
    const sdpa_memory memory = {ATTEND_MEMORY};
    attend(&p, &memory, &g, (uint)get_group_id(0) + group_base);
}

#if !SINGLE_LAUNCH
ONE_GROUP __kernel void sdpa_combine(PARAMS(sdpa_params), COMBINE_ARGUMENTS, uint group_base) {
    __local group_state g;
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(sdpa_params);
    const sdpa_memory memory = {COMBINE_MEMORY};
    const uint group_number = (uint)get_group_id(0) + group_base;
    if (LANE == 0) sdpa_work_tile_init(&g.work, &p, &memory, group_number / p.combine_groups, 1);
    barrier(CLK_LOCAL_MEM_FENCE);
    group_combine(&p, &memory, &g, group_number % p.combine_groups, p.combine_groups);
}
#endif
