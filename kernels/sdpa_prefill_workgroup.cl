/* sdpa_prefill, the shape "workgroup": many work-items to a group, local memory and barriers, OpenCL C 1.2. It is
 * written for GPUs; what a group does, its work tiles and splits are those of sdpa_prefill.cl.
 *
 *                     keys of one KV head, in tiles of 64 ->
 *                  |  tile   |  tile   |  tile   |
 *     ROWS rows    |  group walks over the tiles |   rows: the query heads that share the KV head, times tokens
 *
 * K and V are read once for all rows of a group, and packed rows are decoded once: by stages, parts of a tile that come
 * into local memory as floats. Work-items are a grid of 8 x 16, of which a lane has every eighth row:
 *
 *     classify  tiles are skipped, mixed or clear (sdpa_prefill_group_tile.h)
 *     logits    stages of 64 keys x 32 elements; a lane has every 16th key, and its products in registers
 *     softmax   4 lanes to a row, 8 or 16
 *     values    stages of 16 keys x 128 elements, or 32 x 64; a lane has every 16th run of 4 elements, and its sums in
 *               registers from the first tile to the last, whatever segments these are of
 *
 * Layouts: sdpa_params.h. Needs -D:
 *     SEGMENTS, SLOTS, STEP, APPEND, K_FORMAT_i, V_FORMAT_i, HEAD_SIZE, V_HEAD_SIZE, SINGLE_LAUNCH: as sdpa_prefill.cl
 *     ROWS          8, 16 or 32
 *     GROUP_SIZE    128 work-items */
#if !defined(SEGMENTS) || !defined(SLOTS) || !defined(STEP) || !defined(APPEND) || !defined(K_FORMAT_0) ||             \
    !defined(V_FORMAT_0) || !defined(HEAD_SIZE) || !defined(V_HEAD_SIZE) || !defined(ROWS) ||                          \
    !defined(SINGLE_LAUNCH) || !defined(GROUP_SIZE)
#error "sdpa_prefill_workgroup.cl needs all of the -D that are listed above"
#endif
#if STEP || APPEND || GROUP_SIZE != 128 || (ROWS != 8 && ROWS != 16 && ROWS != 32)
#error "sdpa_prefill_workgroup.cl stores no token, and has groups of 128 for 8, 16 or 32 rows"
#endif

#define WORK_SPACE __local
#define TILE 64
#define LANE ((uint)get_local_id(0))
#define SUBGROUP_SIZE 0

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
#include "local_rotation.h"
#include "sdpa_segment_names.h"
#include "sdpa_formats.h"
#include "sdpa_chunks.h"
#include "sdpa_memory.h"
#include "sdpa_work_tile.h"
#include "sdpa_tensor_rows.h"
#include "sdpa_carried.h"
#include "sdpa_finish_row.h"
#include "sdpa_group_lanes.h"
#include "sdpa_prefill_group_state.h"
#include "sdpa_group_join.h"
#include "sdpa_group_importance.h"
#include "sdpa_group_shown.h"
#include "sdpa_prefill_group_tile.h"
#define SEGMENT_CODE "sdpa_prefill_group_segment.h"
#include "sdpa_every_segment.h"
#include "sdpa_group_end.h"

#define ONE_GROUP __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1)))

/* The work tile, and where each row's mask lies. It ends with a barrier. */
ALWAYS_INLINE void begin_work_tile(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                   uint group_number, uint splits) {
    if (LANE == 0) sdpa_work_tile_begin(&g->work, p, memory, group_number, splits);
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE < ROWS) {
        sdpa_work_tile_row(&g->work, p, LANE);
        if (p->mask_type != TYPE_NONE) g->mask_at[LANE] = (ulong)(mask_row(p, memory, &g->work, LANE) - memory->mask);
        g->maximum[LANE] = NO_MAXIMUM;
        g->sum[LANE] = 0.0f;
        g->skipped[LANE] = 0;
        for (uint i = 0; i < SEGMENTS; ++i) g->segment_weights[i][LANE] = 0.0f;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE == 0) {
        sdpa_work_tile_common(&g->work, p);
        g->is_any[0] = g->is_unlike[0] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

#if SEGMENTS == 1
#define ATTEND_SEGMENT(i) attend_segment_##i(p, memory, g, &of_lane, accumulator);
#else
#define ATTEND_SEGMENT(i)                                                                                              \
    if (sdpa_has_keys_of(&p->segment[i], &g->work, begin, end)) {                                                      \
        if (LANE == 0) sdpa_turn_to(&g->work, &p->segment[i], begin, end);                                             \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        attend_segment_##i(p, memory, g, &of_lane, accumulator);                                                       \
    }
#endif

/* Segments whose values are rotated come first, all by one rotation, and what is summed up of them is rotated back
 * before the others: what these add loses nothing by rotations. */
#define IS_ROTATED(i) JOIN(FORMAT_ROTATED_, V_FORMAT_##i)
#define ATTEND_ROTATED(i) JOIN(ATTEND_ROTATED_, IS_ROTATED(i))(i)
#define ATTEND_ROTATED_0(i)
#define ATTEND_ROTATED_1(i) ATTEND_SEGMENT(i)
#define ATTEND_OTHER(i) JOIN(ATTEND_OTHER_, IS_ROTATED(i))(i)
#define ATTEND_OTHER_0(i) ATTEND_SEGMENT(i)
#define ATTEND_OTHER_1(i)
#if SEGMENTS == 1
#define SOME_ROTATED IS_ROTATED(0)
#elif SEGMENTS == 2
#define SOME_ROTATED (IS_ROTATED(0) || IS_ROTATED(1))
#elif SEGMENTS == 3
#define SOME_ROTATED (IS_ROTATED(0) || IS_ROTATED(1) || IS_ROTATED(2))
#else
#define SOME_ROTATED (IS_ROTATED(0) || IS_ROTATED(1) || IS_ROTATED(2) || IS_ROTATED(3))
#endif

ALWAYS_INLINE void rotate_sums_back(__local group_state* g, float4* accumulator) {
    leave_accumulator(g, accumulator);
    local_rotate_back(g->accumulator, ROWS, V_HEAD_SIZE, V_FLOATS);
    take_accumulator(g, accumulator);
    barrier(CLK_LOCAL_MEM_FENCE);
}

#define ADD_MEAN(i) prefill_add_mean_##i(p, memory, g, accumulator);

ALWAYS_INLINE void attend(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint group_number) {
    fill_lookup_tables(g->lookup_tables);
    begin_work_tile(p, memory, g, group_number, p->splits);
    float4 accumulator[LANE_ROWS * V_RUNS];
#pragma unroll
    for (uint i = 0; i < LANE_ROWS * V_RUNS; ++i) accumulator[i] = (float4)(0.0f);
    prefill_lane of_lane = {NO_MAXIMUM, 0.0f, 0};
#if SEGMENTS > 1
    const uint begin = g->work.key_begin, end = g->work.key_end;
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    DO_EVERY_SEGMENT(ATTEND_ROTATED)
#if SOME_ROTATED
    rotate_sums_back(g, accumulator);
#endif
    DO_EVERY_SEGMENT(ATTEND_OTHER)
    if (LANE_OF_ROW == 0) g->maximum[LANE_ROW] = of_lane.maximum;
    barrier(CLK_LOCAL_MEM_FENCE);
#if SLOTS
    DO_EVERY_SEGMENT(ADD_MEAN)
#endif
#if SEGMENTS > 1
    if (LANE == 0) g->work.first_score = 0;
#endif
    leave_accumulator(g, accumulator);
    group_leave_result(p, memory, g);
}

ONE_GROUP __kernel void sdpa_prefill(PARAMS(sdpa_params), ATTEND_ARGUMENTS, uint group_base) {
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
