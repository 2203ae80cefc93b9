/* slot_zero: makes small elements of dense rows zero, in place. "cpu" shape: one work-item per work-group, a group for
 * each side (K, V), KV head and range of slots; two launches, since the threshold is of all ranges of a head.
 *
 *     SLOT_ZERO_ADD_UP   | count, sum, sum of squares of |x| | of each range
 *     SLOT_ZERO_ZERO     tau = scale * max(sigma / 2, mu) of all ranges;   | .3 | -.02 | .1 |  ->  | .3 | 0 | .1 |
 *
 * Sums are of |x| * unit, a power of two by which the largest of a range is about 1: no square overflows. Halves need
 * none. What is not finite counts nowhere, and stays. Layouts: slot_zero_params.h. Needs no -D.
 */
#include "one_work_item.h"
#include "slot_zero_params.h"

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_zero_ranges.h"

/* A sum of vectors that loses nothing but the last bit (Kahan). */
typedef struct long_sum {
    float16 sum, lost;
} long_sum;

static inline void add_to(long_sum* total, float16 x) {
    const float16 y = x - total->lost;
    const float16 sum = total->sum + y;
    total->lost = (sum - total->sum) - y;
    total->sum = sum;
}

/* By the bits, since PoCL's isfinite goes lane by lane. */
static inline int16 lanes_finite(float16 x) { return (as_int16(x) & 0x7f800000) != 0x7f800000; }

/* |x| * unit; 0 where x is not finite. */
static inline float16 magnitudes(float16 x, float unit) {
    return as_float16(as_int16(fabs(x) * unit) & lanes_finite(x));
}

static inline float magnitude(float x, float unit) { return isfinite(x) ? fabs(x) * unit : 0.0f; }

/* The power of two by which the largest of the rows is between 1 and 2. */
__attribute__((always_inline)) static inline float unit_of(const some_rows* at, const uint TYPE) {
    if (TYPE == TYPE_F16) return 1.0f;
    float16 largest = (float16)(0.0f);
    for (uint slot = at->first; slot < at->end; ++slot) {
        if (!is_meant(at, slot)) continue;
        const __global uchar* row = at->rows + (long)slot * at->stride;
        uint i = 0;
        for (; i + 16 <= at->size; i += 16) largest = larger(magnitudes(load16_any(row, TYPE, i), 1.0f), largest);
        for (; i < at->size; ++i) largest.s0 = fmax(largest.s0, magnitude(load_any(row, TYPE, i), 1.0f));
    }
    const uint exponent = as_uint(maximum_of_lanes(largest)) >> 23;
    return as_float(max(254u - exponent, 1u) << 23);
}

/* What a row adds to the sums; tells how many of its elements are finite. `is_checked` is 0 as long as all of them are
 * taken for finite. */
__attribute__((always_inline)) static inline uint add_row(const __global uchar* row, uint size, float unit,
                                                          const uint TYPE, const int is_checked, float16* sum,
                                                          float16* square) {
    float16 all = (float16)(0.0f), squares = (float16)(0.0f);
    int16 counts = (int16)(0);
    uint i = 0, count = 0;
    for (; i + 16 <= size; i += 16) {
        const float16 x = load16_any(row, TYPE, i);
        const float16 y = is_checked ? magnitudes(x, unit) : fabs(x) * unit;
        all += y;
        squares = fma(y, y, squares);
        if (is_checked) counts -= lanes_finite(x);
    }
    for (; i < size; ++i) {
        const float x = load_any(row, TYPE, i);
        const float y = is_checked ? magnitude(x, unit) : fabs(x) * unit;
        all.s0 += y;
        squares.s0 = fma(y, y, squares.s0);
        count += isfinite(x) ? 1u : 0u;
    }
    *sum = all;
    *square = squares;
    if (!is_checked) return size;
    const int8 counts8 = counts.lo + counts.hi;
    const int4 counts4 = counts8.lo + counts8.hi;
    return count + (uint)(counts4.x + counts4.y + counts4.z + counts4.w);
}

__attribute__((always_inline)) static inline range_sums add_up(const some_rows* at, const uint TYPE) {
    range_sums result;
    result.unit = unit_of(at, TYPE);
    long_sum sums, squares;
    sums.sum = sums.lost = squares.sum = squares.lost = (float16)(0.0f);
    result.count = 0;
    for (uint slot = at->first; slot < at->end; ++slot) {
        if (!is_meant(at, slot)) continue;
        const __global uchar* row = at->rows + (long)slot * at->stride;
        float16 sum, square;
        uint count = add_row(row, at->size, result.unit, TYPE, 0, &sum, &square);
        const int16 is_wrong = ~lanes_finite(sum); /* an element was not finite */
        const int8 wrong8 = is_wrong.lo | is_wrong.hi;
        const int4 wrong4 = wrong8.lo | wrong8.hi;
        if ((wrong4.x | wrong4.y | wrong4.z | wrong4.w) != 0)
            count = add_row(row, at->size, result.unit, TYPE, 1, &sum, &square);
        result.count += count;
        add_to(&sums, sum);
        add_to(&squares, square);
    }
    result.sum = sum_of_lanes(sums.sum);
    result.squares = sum_of_lanes(squares.sum);
    return result;
}

/* 8 halves, by bytes: PoCL takes the address of a vector of them for aligned. What is zero already is not stored. */
static inline void zero_halves(__global uchar* at, short least) {
    const short8 bits = as_short8(vload16(0, at)), magnitude = bits & (short8)(0x7fff);
    const short8 changes = (magnitude < (short8)(least)) & (magnitude != (short8)(0));
    const ulong2 any = as_ulong2(changes);
    if ((any.x | any.y) != 0) vstore16(as_uchar16(bits & ~changes), 0, at);
}

static inline void zero_floats(__global uint* at, uint least) {
    const uint8 bits = vload8(0, at), magnitude = bits & 0x7fffffffu;
    const uint8 changes = as_uint8((magnitude < least) & (magnitude != 0));
    const uint4 any = changes.lo | changes.hi;
    if ((any.x | any.y | any.z | any.w) != 0) vstore8(bits & ~changes, 0, at);
}

__attribute__((always_inline)) static inline void zero_rows(const some_rows* at, float tau, const uint TYPE) {
    const uint least = least_bits(tau, TYPE);
    for (uint slot = at->first; slot < at->end; ++slot) {
        if (!is_meant(at, slot)) continue;
        __global uchar* row = at->rows + (long)slot * at->stride;
        uint i = 0;
        for (; i + 8 <= at->size; i += 8) {
            if (TYPE == TYPE_F32)
                zero_floats((__global uint*)row + i, least);
            else
                zero_halves(row + 2 * i, (short)least);
        }
        for (; i < at->size; ++i) {
            __global uint* word = (__global uint*)row + i;
            __global ushort* half_word = (__global ushort*)row + i;
            const uint magnitude = TYPE == TYPE_F32 ? *word & 0x7fffffffu : *half_word & 0x7fffu;
            if (magnitude == 0 || magnitude >= least) continue;
            if (TYPE == TYPE_F32)
                *word = 0;
            else
                *half_word = 0;
        }
    }
}

#define ADD_UP(at, type) add_up(at, type)
#define ZERO_STATE
#define IS_FIRST_LANE 1
#include "slot_zero_range.h"

ONE_WORK_ITEM __kernel void slot_zero(PARAMS(slot_zero_params), __global uchar* k0, __global uchar* v0,
                                      __global uchar* tokens0, __global uchar* k1, __global uchar* v1,
                                      __global uchar* tokens1, __global uchar* k2, __global uchar* v2,
                                      __global uchar* tokens2, __global uchar* k3, __global uchar* v3,
                                      __global uchar* tokens3, __global uchar* positions, __global uchar* sums,
                                      uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_zero_params);
    __global uchar* const rows[2 * SLOT_MOST_SEGMENTS] = {k0, v0, k1, v1, k2, v2, k3, v3};
    __global uchar* const maps[SLOT_MOST_SEGMENTS] = {tokens0, tokens1, tokens2, tokens3};
    zero_range(&p, rows, maps, positions, sums, (uint)get_group_id(0) + group_base);
}
