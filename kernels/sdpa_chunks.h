/* How the attention kernels take rows of Q, K, V and out: in chunks of 16 elements, converted to floats. Needs before
 * it: the formats, format_any.h, HEAD_SIZE and V_HEAD_SIZE. */

/* What the formats of K and V are: dense ones have elements, packed ones have rows only. Keys of a rotated format meet
 * a rotated query, and sums of its values are rotated back, once. The values of a packed row are codes times a factor,
 * and plus a bias in a biased format, which a group of elements or the whole row shares. */
#define K_PACKED JOIN(FORMAT_PACKED_, K_FORMAT)
#define V_PACKED JOIN(FORMAT_PACKED_, V_FORMAT)
#define K_ROTATED JOIN(FORMAT_ROTATED_, K_FORMAT)
#define V_ROTATED JOIN(FORMAT_ROTATED_, V_FORMAT)
#define K_ROW_SCALED JOIN(FORMAT_ROW_SCALED_, K_FORMAT)
#define V_ROW_SCALED JOIN(FORMAT_ROW_SCALED_, V_FORMAT)
#define K_BIASED JOIN(FORMAT_BIASED_, K_FORMAT)
#define V_BIASED JOIN(FORMAT_BIASED_, V_FORMAT)
#define K_GROUP JOIN(FORMAT_GROUP_, K_FORMAT)(HEAD_SIZE)
#define V_GROUP JOIN(FORMAT_GROUP_, V_FORMAT)(V_HEAD_SIZE)
#define K_ROW_BYTES JOIN(FORMAT_ROW_BYTES_, K_FORMAT)(HEAD_SIZE)
#define V_ROW_BYTES JOIN(FORMAT_ROW_BYTES_, V_FORMAT)(V_HEAD_SIZE)

/* Rows of elements are taken in chunks of 16. The last one is moved back so that it ends with the row, and overlaps
 * the one before; a row shorter than 16 has one chunk, of which the first V_HEAD_SIZE lanes count. Packed rows are
 * whole chunks. */
#define CHUNKS(size) (((size) + 15) / 16)
#define V_CHUNKS CHUNKS(V_HEAD_SIZE)
#define CHUNK_START(chunk, size) ((size) <= 16 ? 0u : (uint)((chunk)*16 < (size)-16 ? (chunk)*16 : (size)-16))

#define K_CHUNKS CHUNKS(HEAD_SIZE)
#define K_TAIL (HEAD_SIZE % 16)
#define LANE_INDEX ((int16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))

static inline float16 load_query_chunk(const __global uchar* row, uint type, uint chunk) {
#if HEAD_SIZE < 16
    float lanes[16];
    for (uint lane = 0; lane < 16; ++lane) lanes[lane] = lane < HEAD_SIZE ? load_any(row, type, lane) : 0.0f;
    return vload16(0, lanes);
#elif K_TAIL
    const float16 x = load16_any(row, type, CHUNK_START(chunk, HEAD_SIZE));
    return chunk < K_CHUNKS - 1 ? x : select((float16)(0.0f), x, LANE_INDEX >= 16 - K_TAIL);
#else
    return load16_any(row, type, chunk * 16);
#endif
}

/* A chunk of a row of `size` floats as load_query_chunk and load_value take theirs; chunks may overlap. */
static inline float16 load_mean(const __global uchar* row, uint chunk, const uint size) {
    if (size >= 16) return load16_f32(row, CHUNK_START(chunk, size), size);
    float lanes[16];
    for (uint lane = 0; lane < 16; ++lane) lanes[lane] = lane < size ? load_f32(row, lane) : 0.0f;
    return vload16(0, lanes);
}

/* Asks for a cache line's worth of a row at a time, on the way over its chunks: soon needed (near), or needed later
 * (far). The hardware alone does not keep up with a walk over two streams. Such a request never faults. A packed row's
 * borders are not those of lines, so a line may be asked for twice. Only where pointers are the machine's own
 * addresses; elsewhere nothing. */
#if defined(__x86_64__) || defined(__aarch64__)
#define PREFETCH_CHUNK(row, chunk, row_bytes, chunks, near, far)                                                       \
    if ((chunk) % CHUNKS_OF_A_LINE(row_bytes, chunks) == 0) {                                                          \
        __builtin_prefetch((const void*)(ulong)((row) + (near) + (chunk) * ((row_bytes) / (chunks))), 0, 3);           \
        __builtin_prefetch((const void*)(ulong)((row) + (far) + (chunk) * ((row_bytes) / (chunks))), 0, 2);            \
    }
#else
#define PREFETCH_CHUNK(row, chunk, row_bytes, chunks, near, far)
#endif
#define CHUNKS_OF_A_LINE(row_bytes, chunks)                                                                            \
    ((row_bytes) <= 8 * (chunks) ? 8 : (row_bytes) <= 18 * (chunks) ? 4 : (row_bytes) <= 36 * (chunks) ? 2 : 1)
