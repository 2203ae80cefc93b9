/* The groups of many work-items of the "workgroup" shape of operations on slots, pages and rows: their size, which host
 * and device agree on, and for kernels how they are declared and what their work-items find out together. OpenCL C 1.2.
 */
#pragma once

#define SLOT_GROUP_SIZE 256
#define ROW_GROUP_SIZE 64 /* of those that take rows: a work-item may need most of the registers */
#define SLOT_GROUP_MEMORY 8192    /* bytes of local memory that a group takes at most */

#ifdef __OPENCL_VERSION__
#include "params_argument.h"

#ifndef GROUP_SIZE
#define GROUP_SIZE SLOT_GROUP_SIZE
#endif
#define LANE ((uint)get_local_id(0))
#define ONE_GROUP __attribute__((reqd_work_group_size(GROUP_SIZE, 1, 1)))
#define ALWAYS_INLINE static inline __attribute__((always_inline))

/* Rows are long functions without barriers, each for one work-item. */
#define OUT_OF_LINE __attribute__((noinline))

/* Slots, one after another, whose flags a work-item has at once. */
#define SLOTS_OF_LANE 16
#define SLOTS_AT_ONCE (GROUP_SIZE * SLOTS_OF_LANE)

#if GROUP_SIZE == 256
/* Numbers of all work-items, and the sums of each 16 of them. */
typedef struct group_sums {
    uint of_lane[GROUP_SIZE];
    uint of_16[GROUP_SIZE / 16];
} group_sums;

static inline uint sum_of_16(uint16 x) {
    const uint8 x8 = x.lo + x.hi;
    const uint4 x4 = x8.lo + x8.hi;
    return (x4.x + x4.y) + (x4.z + x4.w);
}

/* Every work-item gives a number; each gets the sum of those before it, and that of all. All work-items call it; it
 * ends with a barrier. */
ALWAYS_INLINE uint sum_before(__local group_sums* sums, uint x, uint* of_all) {
    sums->of_lane[LANE] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE < 16) {
        uint sum = 0;
        for (uint i = LANE * 16; i < LANE * 16 + 16; ++i) {
            const uint next = sums->of_lane[i];
            sums->of_lane[i] = sum;
            sum += next;
        }
        sums->of_16[LANE] = sum;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint16 of_16 = vload16(0, sums->of_16);
    const uint16 lanes = (uint16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    const uint before = sums->of_lane[LANE] + sum_of_16(select((uint16)(0), of_16, lanes < LANE / 16));
    *of_all = sum_of_16(of_16);
    barrier(CLK_LOCAL_MEM_FENCE);
    return before;
}

/* The sum of all alone. */
ALWAYS_INLINE uint sum_of_group(__local group_sums* sums, uint x) {
    sums->of_lane[LANE] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE < 16) sums->of_16[LANE] = sum_of_16(vload16(LANE, sums->of_lane));
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint sum = sum_of_16(vload16(0, sums->of_16));
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

/* Appends to a list of `count` slots, in their order, those of up to 16 from `first` on whose flags are set, of every
 * work-item. Returns how many there are then. The list is whole after the next barrier. */
ALWAYS_INLINE uint append_flagged(__global uint* list, uint count, uint first, uint flags, __local group_sums* sums) {
    uint of_all;
    uint to = count + sum_before(sums, popcount(flags), &of_all);
    for (uint i = 0; i < 16; ++i)
        if (flags >> i & 1) list[to++] = first + i;
    return count + of_all;
}
#endif
#endif
