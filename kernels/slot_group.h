/* The groups of many work-items of the "workgroup" shape of operations on slots: their size, which host and device
 * agree on, and for kernels how they are declared and what their work-items find out together. OpenCL C 1.2. */
#pragma once

#define SLOT_GROUP_SIZE 256
#define SLOT_APPEND_GROUP_SIZE 64 /* whose work-items may need most of the registers each */
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

/* Every work-item gives a number; each gets the sum of those before it, and that of all. sums: [GROUP_SIZE]. All
 * work-items call it; it ends with a barrier. */
ALWAYS_INLINE uint sum_before(__local uint* sums, uint x, uint* of_all) {
    sums[LANE] = x;
    uint sum = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = 1; step < GROUP_SIZE; step *= 2) {
        const uint before = LANE >= step ? sums[LANE - step] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        sum += before;
        sums[LANE] = sum;
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    *of_all = sums[GROUP_SIZE - 1];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum - x;
}

/* Appends to a list of `count` slots, in their order, those of up to 16 from `first` on whose flags are set, of every
 * work-item. Returns how many there are then. The list is whole after the next barrier. */
ALWAYS_INLINE uint append_flagged(__global uint* list, uint count, uint first, uint flags, __local uint* sums) {
    uint of_all;
    uint to = count + sum_before(sums, popcount(flags), &of_all);
    for (uint i = 0; i < 16; ++i)
        if (flags >> i & 1) list[to++] = first + i;
    return count + of_all;
}

/* The sum alone. */
ALWAYS_INLINE uint sum_of_group(__local uint* sums, uint x) {
    sums[LANE] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint step = GROUP_SIZE / 2; step > 0; step /= 2) {
        if (LANE < step) sums[LANE] += sums[LANE + step];
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    const uint sum = sums[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}
#endif
