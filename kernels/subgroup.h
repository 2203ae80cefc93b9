/* Numbers exchanged among the SUBGROUP_SIZE work-items of a subgroup, which run together: no barrier is needed. By
 * cl_khr_subgroup_shuffle, or with SUBGROUP_PTX by the instructions of NVIDIA's GPUs, whose driver has no subgroups but
 * takes its assembler. LANE counts work-items so that those of a subgroup are side by side. */

#ifdef SUBGROUP_PTX
#define LANE ((uint)get_local_id(0))
#define ONE_SUBGROUP_SIZE

static inline float shuffle_xor(float x, const uint mask) {
    float y;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x), "r"(mask));
    return y;
}

static inline float shuffle_from(float x, uint lane) {
    float y;
    __asm__ volatile("shfl.sync.idx.b32 %0, %1, %2, 0x1f, 0xffffffff;" : "=f"(y) : "f"(x), "r"(lane));
    return y;
}

static inline int in_any_lane(int x) {
    int y;
    __asm__ volatile("{ .reg .pred p, q; setp.ne.s32 p, %1, 0; vote.sync.any.pred q, p, 0xffffffff; "
                     "selp.s32 %0, 1, 0, q; }"
                     : "=r"(y)
                     : "r"(x));
    return y;
}
#else
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define LANE ((uint)(get_sub_group_id() * SUBGROUP_SIZE + get_sub_group_local_id()))
#define ONE_SUBGROUP_SIZE __attribute__((intel_reqd_sub_group_size(SUBGROUP_SIZE)))

static inline float shuffle_xor(float x, const uint mask) { return sub_group_shuffle_xor(x, mask); }
static inline float shuffle_from(float x, uint lane) { return sub_group_shuffle(x, lane); }
static inline int in_any_lane(int x) { return sub_group_any(x); }
#endif
