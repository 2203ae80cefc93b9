/* A KV head's slots in an eviction pass, what is said of them in numbers that all of its slots share, and the arguments
 * of its kernels. Needs before it: slot_evict_params.h, kv_rows.h, slot_parts.h, slot_keys.h, TIERS, LANE. */

/* Keys from here on are of slots that are no candidates. */
#if TIERS > 1
#define NO_CANDIDATE KEY_PROTECTED
#else
#define NO_CANDIDATE NO_KEY
#endif

/* One head of a segment, and the keys of its slots. */
typedef struct head_slots {
    __global uchar *k, *v; /* slot 0's rows */
    long k_stride, v_stride;
    __global int* tokens;
    __global float* importance;      /* NULL: the policy keeps none */
    __global float *k_mean, *v_mean; /* or NULL */
    __global float* point;           /* slot_values.h */
    __global ulong* keys;
    uint slots, v_type;
    uint tier; /* 0: the dense segment; else the number of the packed one */
} head_slots;

static inline __global float* floats_of(__global uchar* memory, const head_view* view, uint head) {
    return memory ? (__global float*)of_head(memory, view, head) : 0;
}

static inline uint in_whole_vectors(uint slots) { return (slots + 15) / 16 * 16; }

static inline uint residual_slot(const slot_evict_params* p, uint i) {
    return p->residual_first + (p->leaving_offset + i) % p->residual_count;
}

/* threshold * quantile with twice a float's bits: the float next to it, and what is left. */
static float threshold_of(const slot_eviction* pass, float quantile, float* rest) {
#pragma OPENCL FP_CONTRACT OFF
    *rest = 0.0f;
    if (pass->threshold == 0.0f) return 0.0f; /* also where the quantile is infinite */
    const float product = pass->threshold * quantile;
    if (!isfinite(product)) return product;
    const float error = fma(pass->threshold, quantile, -product) + pass->threshold_rest * quantile;
    const float nearest = product + error;
    *rest = error - (nearest - product);
    return nearest;
}

#define SMALLEST_IMPORTANCE_INPUT 0x1p-24f
#define LARGEST_IMPORTANCE_INPUT 0x1p24f

static inline const __global float* network_of(const slot_evict_params* p, const __global uchar* networks, uint head) {
    if (p->pass.ranking != RANKING_PREDICTION) return 0;
    return (const __global float*)(networks + p->pass.of_ranking) + head * HIDDEN_UNITS * 4;
}

typedef struct head_counts {
    uint live, preferred, others;
} head_counts;

/* The keys of all slots. */
static slot_keys keys_of(const head_slots* dense, const head_slots* packed) {
    slot_keys all;
    all.run[0] = dense->keys;
    all.count[0] = in_whole_vectors(dense->slots);
    all.index[0] = 0;
    for (uint t = 0; t < TIERS; ++t) {
        all.run[t + 1] = packed[t].keys;
        all.count[t + 1] = in_whole_vectors(packed[t].slots);
        all.index[t + 1] = all.index[t] + all.count[t];
    }
    return all;
}

static head_slots head_of(const slot_segment* segment, __global uchar* k, __global uchar* v, __global uchar* tokens,
                          __global uchar* importance, __global uchar* k_mean, __global uchar* v_mean, uint head) {
    head_slots at;
    at.k = k + row_offset(&segment->k, 0, head, 0);
    at.v = v + row_offset(&segment->v, 0, head, 0);
    at.k_stride = segment->k.stride[2];
    at.v_stride = segment->v.stride[2];
    at.tokens = (__global int*)of_head(tokens, &segment->tokens, head);
    at.importance = floats_of(importance, &segment->importance, head);
    at.k_mean = floats_of(k_mean, &segment->k_mean, head);
    at.v_mean = floats_of(v_mean, &segment->v_mean, head);
    at.slots = segment->slots;
    at.v_type = segment->v_type;
    return at;
}

/* The head's scratch memory (slot_evict_params.h): the keys of all segments; returns those of what leaves. */
static inline __global ulong* place_keys(const slot_evict_params* p, head_slots* dense, head_slots* packed,
                                         __global uchar* scratch) {
    dense->tier = 0;
    dense->keys = (__global ulong*)scratch;
    __global ulong* leaving_keys = dense->keys + in_whole_vectors(dense->slots);
    for (uint t = 0; t < TIERS; ++t) {
        packed[t].tier = t + 1;
        packed[t].keys = leaving_keys;
        leaving_keys += in_whole_vectors(packed[t].slots);
    }
    dense->point = (__global float*)(leaving_keys + in_whole_vectors(dense->slots));
    for (uint t = 0; t < TIERS; ++t) packed[t].point = dense->point + (t + 1) * p->v_size;
    return leaving_keys;
}

#if TIERS > 1
/* The f32 row of this work-item, behind the points. */
static inline __global float* row_of_lane(const slot_evict_params* p, const head_slots* dense) {
    return dense->point + (1 + TIERS) * p->v_size + (ulong)LANE * max(p->k_size, p->v_size);
}
#endif

#define SEGMENT_ARGUMENTS(n)                                                                                           \
    __global uchar *k_##n, __global uchar *v_##n, __global uchar *tokens_##n, __global uchar *importance_##n

#if TIERS > 2
#define LOWER_ARGUMENTS SEGMENT_ARGUMENTS(2), SEGMENT_ARGUMENTS(3),
#define PUT_LOWER                                                                                                      \
    packed[1] = head_of(&p.lower[0], k_2, v_2, tokens_2, importance_2, 0, 0, head);                                    \
    packed[2] = head_of(&p.lower[1], k_3, v_3, tokens_3, importance_3, 0, 0, head);
#elif TIERS > 1
#define LOWER_ARGUMENTS SEGMENT_ARGUMENTS(2),
#define PUT_LOWER packed[1] = head_of(&p.lower[0], k_2, v_2, tokens_2, importance_2, 0, 0, head);
#else
#define LOWER_ARGUMENTS
#define PUT_LOWER
#endif

/* Of both kernels; PUT_HEADS makes `dense` and `packed` of `head`. */
#define EVICT_ARGUMENTS                                                                                                \
    SEGMENT_ARGUMENTS(0), __global uchar *k_mean_0, __global uchar *v_mean_0, SEGMENT_ARGUMENTS(1),                    \
        __global uchar *k_mean_1, __global uchar *v_mean_1, LOWER_ARGUMENTS __global uchar *output_sum,                \
        const __global uchar *positions_of, const __global uchar *networks, __global uchar *free_slots,                \
        __global uchar *states, __global uchar *scratch, uint group_base
#define PUT_HEADS                                                                                                      \
    head_slots dense = head_of(&p.dense, k_0, v_0, tokens_0, importance_0, k_mean_0, v_mean_0, head);                  \
    head_slots packed[TIERS];                                                                                          \
    packed[0] = head_of(&p.packed, k_1, v_1, tokens_1, importance_1, k_mean_1, v_mean_1, head);                        \
    PUT_LOWER                                                                                                          \
    for (uint t = 1; t < TIERS; ++t) {                                                                                 \
        packed[t].k_mean = packed[0].k_mean;                                                                           \
        packed[t].v_mean = packed[0].v_mean;                                                                           \
    }
