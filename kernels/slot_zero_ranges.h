/* The ranges of slot_zero: what each adds up to, and the threshold that follows from all of them. Needs before it:
 * slot_zero_params.h, slot_parts.h. */

typedef struct range_sums {
    float unit, sum, squares;
    uint count;
} range_sums;

/* A range of a segment's rows, of one side and head. */
typedef struct some_rows {
    __global uchar* rows; /* that of slot 0 */
    long stride;
    const __global int* tokens;
    const __global int* positions; /* or NULL */
    uint first, end;
    uint size;
    int sink;
} some_rows;

static inline int is_meant(const some_rows* at, uint slot) {
    const int entry = at->tokens[slot];
    if (entry < 0) return 0;
    const int token_id = entry & (ANCHOR_FLAG - 1);
    return (at->positions ? at->positions[token_id] : token_id) >= at->sink;
}

/* The bits of the least number of a type that is no less than tau: magnitudes are in the order of their bits. */
static inline uint least_bits(float tau, const uint TYPE) {
    if (TYPE == TYPE_F32) return as_uint(tau);
    if (TYPE == TYPE_BF16) return (as_uint(tau) + 0xffffu) >> 16;
    ushort bits;
    vstore_half_rte(tau, 0, (half*)&bits);
    return vload_half(0, (const half*)&bits) < tau ? bits + 1u : bits;
}

/* The sums of all ranges, in the smallest unit. */
static inline range_sums join_sums(const __global range_sums* of_ranges, uint ranges) {
    range_sums all;
    all.unit = INFINITY;
    for (uint range = 0; range < ranges; ++range)
        if (of_ranges[range].count > 0) all.unit = fmin(all.unit, of_ranges[range].unit);
    all.sum = all.squares = 0.0f;
    all.count = 0;
    for (uint range = 0; range < ranges; ++range) {
        if (of_ranges[range].count == 0) continue;
        const float ratio = all.unit / of_ranges[range].unit;
        all.sum += of_ranges[range].sum * ratio;
        all.squares += of_ranges[range].squares * ratio * ratio;
        all.count += of_ranges[range].count;
    }
    return all;
}

static inline void join_segment(range_sums* all, range_sums one) {
    if (one.count == 0) return;
    const float unit = all->count == 0 ? one.unit : fmin(all->unit, one.unit);
    const float mine = all->count == 0 ? 0.0f : unit / all->unit, its = unit / one.unit;
    all->sum = all->sum * mine + one.sum * its;
    all->squares = all->squares * mine * mine + one.squares * its * its;
    all->count += one.count;
    all->unit = unit;
}

/* Of magnitudes, by the sums of all of them. */
static inline float threshold_of(const range_sums* all, float scale) {
    const float n = (float)all->count, mean = all->sum / n;
    const float variance = fmax(all->squares / n - mean * mean, 0.0f);
    return fmax(0.5f * sqrt(variance), mean) * scale / all->unit;
}
