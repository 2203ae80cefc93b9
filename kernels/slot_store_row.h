/* store_k_row and store_v_row for slots: what is stored is the row `from`, plus the mean that it was stored less, less
 * the mean of the segment that it comes to; either may be NULL. Needs what kv_store_row.h needs. */

#define ROW_PARAMETERS                                                                                                 \
    __global uchar *to, const __global uchar *from, const __global float *plus, const __global float *less, uint type, \
        uint size, uint norm

static inline float16 load16_between(const __global uchar* from, const __global float* plus, const __global float* less,
                                     uint type, uint first) {
    float16 x = load16_any(from, type, first);
    if (plus) x += vload16(0, plus + first);
    if (less) x -= vload16(0, less + first);
    return x;
}

static inline float load_between(const __global uchar* from, const __global float* plus, const __global float* less,
                                 uint type, uint index) {
    float x = load_any(from, type, index);
    if (plus) x += plus[index];
    if (less) x -= less[index];
    return x;
}

#define ROW_LOAD16(i) load16_between(from, plus, less, type, i)
#define ROW_LOAD(i) load_between(from, plus, less, type, i)
#include "kv_store_row.h"
