/* Sums and maxima of a group's floats, always in the same order. All work-items call them; they end with a barrier.
 * Needs before it: slot_group.h. */

/* name: joins the floats of all, by JOINED(x, y) from `first` on. */
#define FLOAT_OF_GROUP(name, first, JOINED)                                                                            \
    ALWAYS_INLINE float name(__local group_sums* sums, float x) {                                                      \
        sums->of_lane[LANE] = as_uint(x);                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        float all = first;                                                                                             \
        if (LANE < 16) {                                                                                               \
            for (uint i = LANE * 16; i < LANE * 16 + 16; ++i) all = JOINED(all, as_float(sums->of_lane[i]));           \
            sums->of_16[LANE] = as_uint(all);                                                                          \
        }                                                                                                              \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        all = first;                                                                                                   \
        for (uint i = 0; i < 16; ++i) all = JOINED(all, as_float(sums->of_16[i]));                                     \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        return all;                                                                                                    \
    }

#define ADDED(x, y) ((x) + (y))
FLOAT_OF_GROUP(float_sum_of_group, 0.0f, ADDED)
FLOAT_OF_GROUP(float_maximum_of_group, -INFINITY, fmax) /* of what is no NaN */
