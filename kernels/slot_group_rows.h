/* Rows as bytes, moved by all work-items of a group side by side, in words as wide as everything is aligned to. Needs
 * before it: slot_group.h. */

typedef struct moved_rows {
    __global uchar* to; /* row 0 */
    const __global uchar* from;
    long to_stride, from_stride; /* bytes */
    /* Row i is row to_rows[i] there and from_rows[i] here; NULL: row i. */
    const __global uint *to_rows, *from_rows;
    uint rows;
    uint bytes; /* of a row */
} moved_rows;

/* A work-item has some words before it stores the first of them: waiting for memory is what moving is. */
#define WORDS_AT_ONCE 4

/* name: moves the bytes of each row from `first` on, as far as they are whole words. */
#define MOVE_WORDS(name, word)                                                                                         \
    ALWAYS_INLINE void name(const moved_rows* m, uint first) {                                                         \
        const uint words = (m->bytes - first) / sizeof(word), all = m->rows * words;                                   \
        for (uint begin = LANE; begin < all; begin += WORDS_AT_ONCE * GROUP_SIZE) {                                    \
            word x[WORDS_AT_ONCE];                                                                                     \
            __global word* to[WORDS_AT_ONCE];                                                                          \
            for (uint u = 0; u < WORDS_AT_ONCE; ++u) {                                                                 \
                const uint i = begin + u * GROUP_SIZE;                                                                 \
                if (i >= all) continue;                                                                                \
                const uint row = i / words, at = first + i % words * sizeof(word);                                     \
                const long here = m->from_rows ? m->from_rows[row] : row, there = m->to_rows ? m->to_rows[row] : row;  \
                x[u] = *(const __global word*)(m->from + here * m->from_stride + at);                                  \
                to[u] = (__global word*)(m->to + there * m->to_stride + at);                                           \
            }                                                                                                          \
            for (uint u = 0; u < WORDS_AT_ONCE; ++u) {                                                                 \
                if (begin + u * GROUP_SIZE < all) *to[u] = x[u];                                                       \
            }                                                                                                          \
        }                                                                                                              \
    }

MOVE_WORDS(move_words_of_16, uint4)
MOVE_WORDS(move_words_of_4, uint)
MOVE_WORDS(move_words_of_2, ushort)
MOVE_WORDS(move_words_of_1, uchar)

/* The rows there and here do not overlap. */
ALWAYS_INLINE void move_rows_of_bytes(moved_rows m) {
    if (m.to_stride == (long)m.bytes && m.from_stride == (long)m.bytes && !m.to_rows && !m.from_rows) {
        m.bytes *= m.rows;
        m.rows = 1;
    }
    uint places = (uint)(size_t)m.to | (uint)(size_t)m.from;
    if (m.rows > 1 || m.to_rows) places |= (uint)m.to_stride | (uint)m.from_stride;
    if (places % 16 == 0) {
        move_words_of_16(&m, 0);
        move_words_of_1(&m, m.bytes / 16 * 16);
    } else if (places % 4 == 0) {
        move_words_of_4(&m, 0);
        move_words_of_1(&m, m.bytes / 4 * 4);
    } else if (places % 2 == 0) {
        move_words_of_2(&m, 0);
        move_words_of_1(&m, m.bytes / 2 * 2);
    } else {
        move_words_of_1(&m, 0);
    }
}
