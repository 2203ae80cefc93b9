/* The memory of an attention kernel: its arguments, and the struct in which functions find them. Each may be NULL where
 * the parameters say that there is none. Needs before it: SEGMENTS, SLOTS, STEP and APPEND.
 *
 * LENGTHS, 0 where it is not given. 1: each batch entry has a length or a query offset of its own, which lie in memory;
 * SEGMENTS: 1, STEP and APPEND: 0. */
#ifndef LENGTHS
#define LENGTHS 0
#endif
#if LENGTHS && (SEGMENTS != 1 || STEP || APPEND)
#error "attention with LENGTHS has one segment, and stores no token"
#endif

/* A step writes its token into a segment. */
#if STEP || APPEND
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
    __global uchar *out, *scores, *stats, *skipped, *carried, *scratch;
    sdpa_segment_memory segment[SEGMENTS];
#if LENGTHS
    const __global uchar *kv_lengths, *q_offsets;
#endif
#if STEP || APPEND
    const __global uchar *new_k, *new_v;
#endif
#if STEP
    __global uchar *token_positions, *output_sum, *step_weights;
    __global uchar* importance[SEGMENTS];
#endif
} sdpa_memory;

/* The arguments that every attention kernel has, and the struct's fields of them; those of a step. */
#define SDPA_ARGUMENTS                                                                                                 \
    const __global uchar *q_memory, __global uchar *out_memory, const __global uchar *mask_memory,                     \
        const __global uchar *slopes_memory, const __global uchar *alibi_memory, const __global uchar *sinks_memory,   \
        __global uchar *scores_memory, __global uchar *stats_memory, __global uchar *skipped_memory,                   \
        __global uchar *carried_memory, __global uchar *scratch_memory
#define SDPA_MEMORY                                                                                                    \
    .q = q_memory, .mask = mask_memory, .slopes = slopes_memory, .alibi = alibi_memory, .sinks = sinks_memory,         \
    .out = out_memory, .scores = scores_memory, .stats = stats_memory, .skipped = skipped_memory,                      \
    .carried = carried_memory, .scratch = scratch_memory
#define APPEND_ARGUMENTS const __global uchar *new_k_memory, const __global uchar *new_v_memory
#define APPEND_MEMORY .new_k = new_k_memory, .new_v = new_v_memory
#define STEP_ARGUMENTS                                                                                                 \
    APPEND_ARGUMENTS, __global uchar *token_positions_memory, __global uchar *output_sum_memory,                       \
        __global uchar *step_weights_memory
#define STEP_MEMORY                                                                                                    \
    APPEND_MEMORY, .token_positions = token_positions_memory, .output_sum = output_sum_memory,                         \
                   .step_weights = step_weights_memory

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

/* f of each segment, one after the other. */
#define DO_EVERY_SEGMENT(f) DO_SEGMENT_0(f) DO_SEGMENT_1(f) DO_SEGMENT_2(f) DO_SEGMENT_3(f)
#define DO_SEGMENT_0(f) f(0)
#if SEGMENTS > 1
#define DO_SEGMENT_1(f) f(1)
#else
#define DO_SEGMENT_1(f)
#endif
#if SEGMENTS > 2
#define DO_SEGMENT_2(f) f(2)
#else
#define DO_SEGMENT_2(f)
#endif
#if SEGMENTS > 3
#define DO_SEGMENT_3(f) f(3)
#else
#define DO_SEGMENT_3(f)
#endif

/* The arguments of an attention kernel between its parameters and group_base, and the struct of them. */
#if STEP
#define ATTEND_STEP_ARGUMENTS , STEP_ARGUMENTS, EVERY_SEGMENT(IMPORTANCE_ARGUMENT)
#define ATTEND_STEP_MEMORY , STEP_MEMORY, .importance = {EVERY_SEGMENT(IMPORTANCE_MEMORY)}
#elif APPEND
#define ATTEND_STEP_ARGUMENTS , APPEND_ARGUMENTS
#define ATTEND_STEP_MEMORY , APPEND_MEMORY
#elif LENGTHS
#define ATTEND_STEP_ARGUMENTS , const __global uchar *kv_lengths_memory, const __global uchar *q_offsets_memory
#define ATTEND_STEP_MEMORY , .kv_lengths = kv_lengths_memory, .q_offsets = q_offsets_memory
#else
#define ATTEND_STEP_ARGUMENTS
#define ATTEND_STEP_MEMORY
#endif
#define ATTEND_ARGUMENTS SDPA_ARGUMENTS, EVERY_SEGMENT(SEGMENT_ARGUMENTS) ATTEND_STEP_ARGUMENTS
#define ATTEND_MEMORY SDPA_MEMORY, .segment = {EVERY_SEGMENT(SEGMENT_MEMORY)} ATTEND_STEP_MEMORY

/* The arguments of the second of two launches, and the struct's fields of them. */
#if STEP
#define COMBINE_STEP_ARGUMENTS                                                                                         \
    , __global uchar *output_sum_memory, __global uchar *step_weights_memory, EVERY_SEGMENT(IMPORTANCE_ARGUMENT)
#define COMBINE_STEP_MEMORY                                                                                            \
    , .output_sum = output_sum_memory, .step_weights = step_weights_memory,                                            \
      .importance = {EVERY_SEGMENT(IMPORTANCE_MEMORY)}
#else
#define COMBINE_STEP_ARGUMENTS
#define COMBINE_STEP_MEMORY
#endif
#define COMBINE_ARGUMENTS                                                                                              \
    const __global uchar *sinks_memory, __global uchar *out_memory, __global uchar *scores_memory,                     \
        __global uchar *stats_memory, __global uchar *skipped_memory, __global uchar *carried_memory,                  \
        __global uchar *scratch_memory COMBINE_STEP_ARGUMENTS
#define COMBINE_MEMORY                                                                                                 \
    .sinks = sinks_memory, .out = out_memory, .scores = scores_memory, .stats = stats_memory,                          \
    .skipped = skipped_memory, .carried = carried_memory, .scratch = scratch_memory COMBINE_STEP_MEMORY

/* What a split leaves of a work tile: sdpa_params.h. */
static inline __global float* sdpa_partial(const sdpa_params* p, const sdpa_memory* memory, uint tile, uint split) {
    return (__global float*)(memory->scratch + SDPA_COUNTER_BYTES) + p->first_partial +
           ((ulong)tile * p->splits + split) * p->partial_floats;
}
