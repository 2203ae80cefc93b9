/* How the attention kernels take rows of Q, K, V and out: in chunks of 16 elements, converted to floats. The last chunk
 * is moved back so that it ends with the row, and overlaps the one before; a row shorter than 16 has one chunk, of
 * which the first lanes count. Packed rows are whole chunks. Needs before it: the formats, format_any.h,
 * vector_lanes.h, HEAD_SIZE and V_HEAD_SIZE. */
#define CHUNKS(size) (((size) + 15) / 16)
#define CHUNK_START(chunk, size) ((size) <= 16 ? 0u : (uint)((chunk)*16 < (size)-16 ? (chunk)*16 : (size)-16))

#define K_CHUNKS CHUNKS(HEAD_SIZE)
#define V_CHUNKS CHUNKS(V_HEAD_SIZE)
#define K_TAIL (HEAD_SIZE % 16)

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
