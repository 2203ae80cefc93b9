/* A step of a sequence as one argument, on a device that computes in the host's memory: an entry has what a launch has
 * else, its memory by address. Several sequences in one launch are a table of entries in memory. Each is cut into
 * work-groups as if it were alone, so that its result is the same. Needs before it: sdpa_params.h, sdpa_memory.h and
 * sdpa_attend.h. */
typedef struct sdpa_entry {
    uint groups; /* of the launch: the next entry has those after them */
    uint reserved;
    ulong memory[SDPA_ADDRESSES(SEGMENTS)]; /* addresses of ATTEND_ARGUMENTS, in their order */
    sdpa_params params;
} sdpa_entry;

#define ADDRESS(i) (__global uchar*)entry->memory[i]
#define SEGMENT_ADDRESS(i, which) ADDRESS(SDPA_OWN_ARGUMENTS + SDPA_SEGMENT_ARGUMENTS * (i) + (which))
#define SEGMENT_ADDRESSES(i)                                                                                           \
    {                                                                                                                  \
        SEGMENT_ADDRESS(i, 0), SEGMENT_ADDRESS(i, 1), SEGMENT_ADDRESS(i, 2), SEGMENT_ADDRESS(i, 3),                    \
            SEGMENT_ADDRESS(i, 4)                                                                                      \
    }
#define STEP_ADDRESS(i) SEGMENT_ADDRESS(SEGMENTS, i)
#define IMPORTANCE_ADDRESS(i) STEP_ADDRESS(SDPA_STEP_ARGUMENTS + (i))

static inline void attend_entry(const sdpa_entry* entry, uint group) {
    const sdpa_memory memory = {.q = ADDRESS(0),
                                .out = ADDRESS(1),
                                .mask = ADDRESS(2),
                                .slopes = ADDRESS(3),
                                .alibi = ADDRESS(4),
                                .sinks = ADDRESS(5),
                                .scores = ADDRESS(6),
                                .stats = ADDRESS(7),
                                .skipped = ADDRESS(8),
                                .carried = ADDRESS(9),
                                .scratch = ADDRESS(10),
                                .segment = {EVERY_SEGMENT(SEGMENT_ADDRESSES)},
                                .new_k = STEP_ADDRESS(0),
                                .new_v = STEP_ADDRESS(1),
                                .token_positions = STEP_ADDRESS(2),
                                .output_sum = STEP_ADDRESS(3),
                                .step_weights = STEP_ADDRESS(4),
                                .importance = {EVERY_SEGMENT(IMPORTANCE_ADDRESS)}};
    attend(&entry->params, &memory, group);
}
