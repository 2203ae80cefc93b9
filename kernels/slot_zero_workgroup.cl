/* slot_zero, "workgroup" shape: a group for each side (K, V), KV head and range of slots, in the two launches of
 * slot_zero.cl. Its work-items take words of the rows side by side: 16 bytes, where rows are aligned to that, else an
 * element. Layouts: slot_zero_params.h. Needs no -D.
 */
#include "slot_group.h"
#include "slot_zero_params.h"

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_zero_ranges.h"

typedef struct zero_state {
    float numbers[GROUP_SIZE], of_16[16];
    group_sums counts;
    uint largest; /* the bits of a magnitude */
} zero_state;

/* How a range's rows are cut. */
typedef struct row_words {
    uint bytes; /* of a word: 16, or of an element */
    uint of_row, all;
} row_words;

ALWAYS_INLINE row_words words_of(const some_rows* at, const uint TYPE) {
    const uint element = TYPE == TYPE_F32 ? 4 : 2, row = at->size * element;
    const uint is_whole = (((uint)(size_t)at->rows | (uint)at->stride | row) & 15) == 0;
    row_words words;
    words.bytes = is_whole ? 16 : element;
    words.of_row = row / words.bytes;
    words.all = (at->end - at->first) * words.of_row;
    return words;
}

/* Word i of a range, or NULL in a row that does not take part. */
static inline __global uchar* word_at(const some_rows* at, row_words words, uint i) {
    const uint slot = at->first + i / words.of_row;
    return is_meant(at, slot) ? at->rows + (long)slot * at->stride + i % words.of_row * words.bytes : 0;
}

/* The bits of a word's elements, four at a time or two; with one element alone the others are 0. */
ALWAYS_INLINE uint4 load_word(const __global uchar* at, uint bytes, const uint TYPE) {
    if (bytes == 16) return *(const __global uint4*)at;
    return (uint4)(TYPE == TYPE_F32 ? *(const __global uint*)at : *(const __global ushort*)at, 0, 0, 0);
}

/* An element by its bits. */
ALWAYS_INLINE float element_of(uint bits, const uint TYPE) {
    if (TYPE == TYPE_F32) return as_float(bits);
    if (TYPE == TYPE_BF16) return as_float(bits << 16);
    const ushort half_bits = (ushort)bits;
    return vload_half(0, (const half*)&half_bits);
}

/* A sum that loses nothing but the last bit (Kahan). */
typedef struct long_sum {
    float sum, lost;
} long_sum;

static inline void add_to(long_sum* total, float x) {
    const float y = x - total->lost, sum = total->sum + y;
    total->lost = (sum - total->sum) - y;
    total->sum = sum;
}

/* FOR_EVERY_ELEMENT(at, TYPE, x) { ... }: of a work-item's words. An element that is not there is 0. */
#define FOR_EVERY_ELEMENT(at, TYPE, words, x, is_there, DO)                                                            \
    for (uint i = LANE; i < words.all; i += GROUP_SIZE) {                                                              \
        const __global uchar* place = word_at(at, words, i);                                                           \
        if (!place) continue;                                                                                          \
        const uint4 word = load_word(place, words.bytes, TYPE);                                                        \
        const uint bits[4] = {word.x, word.y, word.z, word.w};                                                         \
        for (uint e = 0; e < (TYPE == TYPE_F32 ? 4 : 8); ++e) {                                                        \
            const uint of_element = TYPE == TYPE_F32 ? bits[e] : bits[e / 2] >> e % 2 * 16 & 0xffffu;                  \
            const float x = element_of(of_element, TYPE);                                                              \
            const int is_there = isfinite(x) && (e == 0 || words.bytes == 16);                                         \
            DO                                                                                                         \
        }                                                                                                              \
    }

/* The power of two by which the largest of the rows is between 1 and 2. */
ALWAYS_INLINE float unit_of(const some_rows* at, row_words words, const uint TYPE, __local zero_state* s) {
    if (TYPE == TYPE_F16) return 1.0f;
    float largest = 0.0f;
    FOR_EVERY_ELEMENT(at, TYPE, words, x, is_there, if (is_there) largest = fmax(largest, fabs(x));)
    if (LANE == 0) s->largest = 0;
    barrier(CLK_LOCAL_MEM_FENCE);
    atomic_max(&s->largest, as_uint(largest));
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint exponent = s->largest >> 23;
    barrier(CLK_LOCAL_MEM_FENCE);
    return as_float(max(254u - exponent, 1u) << 23);
}

ALWAYS_INLINE float sum_numbers(float x, __local zero_state* s) {
    s->numbers[LANE] = x;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (LANE < 16) s->of_16[LANE] = sum_of_lanes(vload16(LANE, s->numbers));
    barrier(CLK_LOCAL_MEM_FENCE);
    const float sum = sum_of_lanes(vload16(0, s->of_16));
    barrier(CLK_LOCAL_MEM_FENCE);
    return sum;
}

ALWAYS_INLINE range_sums add_up(const some_rows* at, const uint TYPE, __local zero_state* s) {
    const row_words words = words_of(at, TYPE);
    const float unit = unit_of(at, words, TYPE, s);
    long_sum sum = {0.0f, 0.0f}, squares = {0.0f, 0.0f};
    uint count = 0;
    FOR_EVERY_ELEMENT(
        at, TYPE, words, x, is_there, if (is_there) {
            const float y = fabs(x) * unit;
            add_to(&sum, y);
            add_to(&squares, y * y);
            ++count;
        })
    range_sums result;
    result.unit = unit;
    result.sum = sum_numbers(sum.sum, s);
    result.squares = sum_numbers(squares.sum, s);
    result.count = sum_of_group(&s->counts, count);
    return result;
}

/* Bits of elements less those whose magnitude is below `least`; -0 stays what it is. */
ALWAYS_INLINE uint4 without_small(uint4 bits, uint least, uint magnitude_bits) {
    const uint4 magnitude = bits & magnitude_bits;
    return select(bits, (uint4)(0), (magnitude < least) & (magnitude != 0u));
}

ALWAYS_INLINE uint4 zero_small(uint4 word, uint least, const uint TYPE) {
    if (TYPE == TYPE_F32) return without_small(word, least, 0x7fffffffu);
    return without_small(word & 0xffffu, least, 0x7fffu) | without_small(word >> 16, least, 0x7fffu) << 16;
}

ALWAYS_INLINE void zero_rows(const some_rows* at, float tau, const uint TYPE) {
    const uint least = least_bits(tau, TYPE);
    const row_words words = words_of(at, TYPE);
    for (uint i = LANE; i < words.all; i += GROUP_SIZE) {
        __global uchar* place = word_at(at, words, i);
        if (!place) continue;
        const uint4 before = load_word(place, words.bytes, TYPE), after = zero_small(before, least, TYPE);
        const uint4 changes = before ^ after;
        if ((changes.x | changes.y | changes.z | changes.w) == 0) continue;
        if (words.bytes == 16)
            *(__global uint4*)place = after;
        else if (TYPE == TYPE_F32)
            *(__global uint*)place = after.x;
        else
            *(__global ushort*)place = (ushort)after.x;
    }
}

#define ADD_UP(at, type) add_up(at, type, s)
#define ZERO_STATE , __local zero_state* s
#define IS_FIRST_LANE (LANE == 0)
#include "slot_zero_range.h"

ONE_GROUP __kernel void slot_zero(PARAMS(slot_zero_params), __global uchar* k0, __global uchar* v0,
                                  __global uchar* tokens0, __global uchar* k1, __global uchar* v1,
                                  __global uchar* tokens1, __global uchar* k2, __global uchar* v2,
                                  __global uchar* tokens2, __global uchar* k3, __global uchar* v3,
                                  __global uchar* tokens3, __global uchar* positions, __global uchar* sums,
                                  uint group_base) {
    __local zero_state s;
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_zero_params);
    __global uchar* const rows[2 * SLOT_MOST_SEGMENTS] = {k0, v0, k1, v1, k2, v2, k3, v3};
    __global uchar* const maps[SLOT_MOST_SEGMENTS] = {tokens0, tokens1, tokens2, tokens3};
    zero_range(&p, rows, maps, positions, sums, (uint)get_group_id(0) + group_base, &s);
}
