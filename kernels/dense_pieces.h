/* Pieces of 8 elements of dense rows, as they are loaded and as numbers. A row has pairs of pieces; what lies past its
 * end is zeros, and is not read. Needs before it: tensor_view.h. */

/* Whether all pieces of rows lie at whole multiples of 16 bytes. */
static inline int are_aligned(const __global uchar* first, long stride) {
    return (((ulong)first | (ulong)stride) & 15) == 0;
}

typedef uint4 piece_f16;
typedef uint4 piece_bf16;
typedef uint8 piece_f32;

/* In words, because some compilers keep registers for halves that they do not join. */
static inline uint two_halves(const __global ushort* from, uint i, const uint n) {
    return (i < n ? (uint)from[i] : 0u) | (i + 1 < n ? (uint)from[i + 1] << 16 : 0u);
}

static inline uint4 load_piece_of_halves(const __global uchar* row, uint first, const uint n, const int is_aligned) {
    const __global ushort* from = (const __global ushort*)row;
    const uint end = n % 16 == 0 ? first + 8 : n; /* where all pieces are whole nothing is compared */
    if (is_aligned && first + 8 <= end) return *(const __global uint4*)(from + first);
    return (uint4)(two_halves(from, first, end), two_halves(from, first + 2, end), two_halves(from, first + 4, end),
                   two_halves(from, first + 6, end));
}

static inline uint8 load_piece_of_words(const __global uchar* row, uint first, const uint n, const int is_aligned) {
    const __global uint* from = (const __global uint*)row + first;
    if (n % 16 == 0 || first + 8 <= n) {
        const __global uint4* blocks = (const __global uint4*)from;
        return is_aligned ? (uint8)(blocks[0], blocks[1]) : vload8(0, from);
    }
    uint x[8];
    for (uint i = 0; i < 8; ++i) x[i] = first + i < n ? from[i] : 0;
    return vload8(0, x);
}

#define DENSE_PIECE(format, load)                                                                                      \
    static inline piece_##format load_piece_##format(const __global uchar* row, uint first, const uint n) {            \
        return load(row, first, n, 0);                                                                                 \
    }                                                                                                                  \
    static inline piece_##format load_aligned_piece_##format(const __global uchar* row, uint first, const uint n) {    \
        return load(row, first, n, 1);                                                                                 \
    }
DENSE_PIECE(f16, load_piece_of_halves)
DENSE_PIECE(bf16, load_piece_of_halves)
DENSE_PIECE(f32, load_piece_of_words)

static inline float8 floats_of_piece_f16(uint4 x) { return vload_half8(0, (const half*)&x); }
static inline float8 floats_of_piece_bf16(uint4 x) { return as_float8(convert_uint8(as_ushort8(x)) << 16); }
static inline float8 floats_of_piece_f32(uint8 x) { return as_float8(x); }
