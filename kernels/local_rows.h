/* Rows of K or V in local memory: the work-items of a group bring a batch of them there together, 16 bytes at a time
 * wherever these lie whole in what is read, and then each takes the elements it needs. Nothing outside of the rows is
 * read. Needs before it: tensor_view.h, GROUP_SIZE and LANE; a program that has this has packed rows and the tables of
 * their codes in local memory, and nowhere else. */

/* ---- Tables of codes (format_packed.h) ---- */

#define ROW_SPACE __local
#define LOOKUP_PARAMETER , const __local float* lookup_tables
#define LOOKUP_TABLE , lookup_tables
#define LOOKUP(table, index) lookup_local(lookup_tables + LOOKUP_AT_##table, index)
#define LOOKUP_INTEGERS(first, index) (convert_float16((index)&15) + (float)(first))

#define LOOKUP_AT_TURBO_CENTROIDS_4 0
#define LOOKUP_AT_TURBO_CENTROIDS_3 16
#define LOOKUP_AT_TURBO_CENTROIDS_2 32
#define LOOKUP_AT_IQ4_NL_VALUES 48
#define LOOKUP_FLOATS 64

static inline float16 lookup_local(const __local float* table, int16 index) {
    const int16 i = index & 15;
    return (float16)(table[i.s0], table[i.s1], table[i.s2], table[i.s3], table[i.s4], table[i.s5], table[i.s6],
                     table[i.s7], table[i.s8], table[i.s9], table[i.sa], table[i.sb], table[i.sc], table[i.sd],
                     table[i.se], table[i.sf]);
}

/* ---- Rows ---- */

/* Where rows were put. Packed ones that lie without gaps keep their place in blocks of 16 bytes, so that these are
 * copied as such. */
typedef struct local_rows {
    const __local uchar* first;
    uint stride; /* bytes, from row to row */
} local_rows;

static inline const __local uchar* local_row(const local_rows* rows, uint t) { return rows->first + t * rows->stride; }

/* Bytes that a row may take: a dense one, whole chunks of 16 elements, and 16 bytes more so that lanes that read one
 * row each meet in no bank; a packed one, whichever place it begins at. */
#define LOCAL_ROW_BYTES(is_packed, row_bytes, size)                                                                    \
    ((is_packed) ? ((row_bytes) + 15 + 15) / 16 * 16 : ((row_bytes) / (size)) * (((size) + 15) / 16 * 16) + 16)

#define LARGEST_POWER_OF_2(n)                                                                                          \
    ((n) >= 128  ? 128                                                                                                 \
     : (n) >= 64 ? 64                                                                                                  \
     : (n) >= 32 ? 32                                                                                                  \
     : (n) >= 16 ? 16                                                                                                  \
     : (n) >= 8  ? 8                                                                                                   \
     : (n) >= 4  ? 4                                                                                                   \
     : (n) >= 2  ? 2                                                                                                   \
                 : 1)

/* Loads of a lane that are under way at once. */
#define LOADS_AT_ONCE 8

/* Copies `count` blocks of 16 bytes of each of `runs` runs, `stride` apart, to blocks that are `pitch` apart. A count
 * that divides GROUP_SIZE, known when this is compiled, costs least: each lane then keeps its place in the runs. */
static inline void copy_blocks(__local uint4* to, uint pitch, const __global uint4* from, long stride, const uint count,
                               uint runs) {
    const uint abreast = count < GROUP_SIZE ? GROUP_SIZE / count : 1; /* runs */
    const uint first = count < GROUP_SIZE ? LANE / count : 0;
    if (first >= abreast) return;
    for (uint at = count < GROUP_SIZE ? LANE % count : LANE; at < count; at += GROUP_SIZE) {
        const __global uchar* place = (const __global uchar*)(from + at) + first * stride;
        for (uint run = first; run < runs; run += LOADS_AT_ONCE * abreast, place += LOADS_AT_ONCE * abreast * stride) {
            uint4 x[LOADS_AT_ONCE];
#pragma unroll
            for (uint k = 0; k < LOADS_AT_ONCE; ++k)
                if (run + k * abreast < runs) x[k] = *(const __global uint4*)(place + k * abreast * stride);
#pragma unroll
            for (uint k = 0; k < LOADS_AT_ONCE; ++k)
                if (run + k * abreast < runs) to[(run + k * abreast) * pitch + at] = x[k];
        }
    }
}

/* Copies an even number of bytes in halves of 16 bits. */
static inline void copy_halves(__local uchar* to, const __global uchar* from, uint bytes, uint lane, uint lanes) {
    for (uint i = lane; i < bytes / 2; i += lanes) ((__local ushort*)to)[i] = ((const __global ushort*)from)[i];
}

/* Copies a run of an even number of bytes, which begins at `phase` of a block here and there, and is not shorter than
 * one: whole blocks as such, and what is left at both ends. */
static inline void copy_bytes(__local uint4* to, const __global uchar* from, uint phase, uint bytes) {
    const uint head = (16 - phase) & 15, blocks = (bytes - head) / 16;
    __local uchar* place = (__local uchar*)to + phase;
    copy_blocks((__local uint4*)(place + head), 1, (const __global uint4*)(from + head), 16, 1, blocks);
    const uint tail = head + blocks * 16;
    if (LANE < 8)
        copy_halves(place, from, head, LANE, 8);
    else if (LANE < 16)
        copy_halves(place + tail, from + tail, bytes - tail, LANE - 8, 8);
}

/* Brings `count` rows of row_bytes, from `from` on, to local memory. size: their elements. */
static inline local_rows stage_rows(__local uint4* to, const __global uchar* from, long stride, uint count,
                                    const uint row_bytes, const uint size, const int is_packed) {
    const uint phase = (uint)(ulong)from & 15;
    local_rows rows = {(const __local uchar*)to, LOCAL_ROW_BYTES(is_packed, row_bytes, size)};
    __local uchar* first = (__local uchar*)to;
    if (is_packed && stride == row_bytes && count * row_bytes >= 16) {
        rows.stride = row_bytes;
        rows.first += phase;
        copy_bytes(to, from, phase, count * row_bytes);
    } else if (row_bytes % 16 == 0 && phase == 0 && (stride & 15) == 0) {
        copy_blocks(to, rows.stride / 16, (const __global uint4*)from, stride, row_bytes / 16, count);
    } else {
        /* A row to 8 lanes. */
        for (uint row = LANE / 8; row < count; row += GROUP_SIZE / 8)
            copy_halves(first + row * rows.stride, from + (long)row * stride, row_bytes, LANE % 8, 8);
    }
    if (!is_packed && size % 16 != 0) { /* a dense row's last chunk is filled up with zeros */
        const uint rest = (rows.stride - 16 - row_bytes) / 2;
        for (uint i = LANE; i < count * rest; i += GROUP_SIZE)
            ((__local ushort*)(first + i / rest * rows.stride + row_bytes))[i % rest] = 0;
    }
    return rows;
}
