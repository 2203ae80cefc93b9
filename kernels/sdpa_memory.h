/* The memory of an attention kernel: its arguments, and the struct in which functions find them. Each may be NULL where
 * the parameters say that there is none. Needs before it: SEGMENTS, SLOTS and STEP. */

/* A step writes its token into a segment. */
#if STEP
#define SEGMENT_BYTES __global uchar
#else
#define SEGMENT_BYTES const __global uchar
#endif

typedef struct sdpa_segment_memory {
    SEGMENT_BYTES *k, *v;
#if SLOTS
    SEGMENT_BYTES* positions;
    const __global uchar *k_mean, *v_mean;
#endif
} sdpa_segment_memory;

typedef struct sdpa_memory {
    const __global uchar *q, *mask, *slopes, *alibi, *sinks;
    __global uchar *out, *scores, *stats, *skipped, *scratch;
    sdpa_segment_memory segment[SEGMENTS];
#if STEP
    const __global uchar *new_k, *new_v;
    __global uchar *token_positions, *output_sum, *records;
    __global uchar* importance[SEGMENTS];
#endif
} sdpa_memory;

/* The arguments that come once for each segment, and the struct of one of them. */
#if SLOTS
#define SEGMENT_ARGUMENTS(i)                                                                                           \
    SEGMENT_BYTES *k_memory_##i, SEGMENT_BYTES *v_memory_##i, SEGMENT_BYTES *positions_memory_##i,                     \
        const __global uchar *k_mean_memory_##i, const __global uchar *v_mean_memory_##i
#define SEGMENT_MEMORY(i)                                                                                              \
    { k_memory_##i, v_memory_##i, positions_memory_##i, k_mean_memory_##i, v_mean_memory_##i }
#else
#define SEGMENT_ARGUMENTS(i) const __global uchar *k_memory_##i, const __global uchar *v_memory_##i
#define SEGMENT_MEMORY(i)                                                                                              \
    { k_memory_##i, v_memory_##i }
#endif

#define IMPORTANCE_ARGUMENT(i) __global uchar* importance_memory_##i
#define IMPORTANCE_MEMORY(i) importance_memory_##i

#if SEGMENTS == 1
#define EVERY_SEGMENT(f) f(0)
#elif SEGMENTS == 2
#define EVERY_SEGMENT(f) f(0), f(1)
#elif SEGMENTS == 3
#define EVERY_SEGMENT(f) f(0), f(1), f(2)
#else
#define EVERY_SEGMENT(f) f(0), f(1), f(2), f(3)
#endif
