/* Asks for a cache line's worth of a row at a time, on the way over its chunks: soon needed (near), or needed later
 * (far). The hardware alone does not keep up with a walk over two streams. Such a request never faults. A packed row's
 * borders are not those of lines, so a line may be asked for twice. Only where pointers are the machine's own
 * addresses; elsewhere nothing. */
#if defined(__x86_64__) || defined(__aarch64__)
#define PREFETCH_CHUNK(row, chunk, row_bytes, chunks, near, far, has_far)                                              \
    if ((chunk) % CHUNKS_OF_A_LINE(row_bytes, chunks) == 0) {                                                          \
        __builtin_prefetch((const void*)(ulong)((row) + (near) + (chunk) * ((row_bytes) / (chunks))), 0, 3);           \
        if (has_far)                                                                                                   \
            __builtin_prefetch((const void*)(ulong)((row) + (far) + (chunk) * ((row_bytes) / (chunks))), 0, 2);        \
    }
#else
#define PREFETCH_CHUNK(row, chunk, row_bytes, chunks, near, far, has_far)
#endif
#define CHUNKS_OF_A_LINE(row_bytes, chunks)                                                                            \
    ((row_bytes) <= 8 * (chunks) ? 8 : (row_bytes) <= 18 * (chunks) ? 4 : (row_bytes) <= 36 * (chunks) ? 2 : 1)
