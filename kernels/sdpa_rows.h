/* What the attention kernels have in common beside the inner products: which rows and keys a work-group takes, what
 * a row sees (causality, window, masks), the transforms of a logit, scores_out, and combining the splits. Needs
 * before it: sdpa_params.h, the formats, float16_math.h, vector_parts.h, sdpa_chunks.h, SLOTS, STEP, STORES and
 * ROWS. */

/* Stands for "no key yet" in a row's maximum. A key that is seen is told from one that is not by a mask of its own,
 * not by this value, so a finite mask of -FLT_MAX keeps its meaning. A logit of -infinity hides its key. */
#define NO_MAXIMUM (-FLT_MAX)

/* The memory arguments of a launch; each may be NULL where the parameters say that there is none. */
typedef struct sdpa_segment_memory {
#if STEP
    __global uchar *k, *v, *positions;
#else
    const __global uchar *k, *v;
#if SLOTS
    const __global uchar* positions;
#endif
#endif
#if SLOTS
    const __global uchar *k_mean, *v_mean;
#endif
} sdpa_segment_memory;

typedef struct sdpa_memory {
    const __global uchar *q, *mask, *slopes, *alibi, *sinks;
    __global uchar *out, *scores, *stats, *skipped, *scratch;
    sdpa_segment_memory segment[STORES];
#if STEP
    const __global uchar *new_k, *new_v;
    __global uchar *token_positions, *output_sum, *records;
    __global uchar* importance[STORES];
#endif
} sdpa_memory;

#define ROWS_OF_16 ((ROWS + 15) / 16 * 16)

/* What one work-group works on. */
typedef struct sdpa_work_tile {
    uint unit, split, batch, kv_head, first_row;
    uint rows;               /* of this block, 1 .. ROWS; the rest repeats the last row and is not stored */
    uint key_begin, key_end; /* in the segment at hand */
    uint first_score;        /* of the segment at hand */
    uint head[ROWS], token[ROWS];
    int see_begin[ROWS], see_end[ROWS];         /* positions that causality and window let a row see */
    int any_begin, any_end, all_begin, all_end; /* seen by any, by all rows */
} sdpa_work_tile;

/* Where positions end: a key's position is its index, or what the slot map says, which is below 2^30. */
#if SLOTS
#define POSITIONS_END(p) (1u << 30)
#else
#define POSITIONS_END(p) ((p)->kv_len)
#endif

static inline int clamp_position(long position, uint end) {
    return position < 0 ? 0 : position > (long)end ? (int)end : (int)position;
}

static inline void sdpa_work_tile_init(sdpa_work_tile* unit, const sdpa_params* p, uint group_number, uint splits) {
    unit->split = group_number % splits;
    unit->unit = group_number / splits;
    const uint row_block = unit->unit % p->row_blocks;
    const uint plane = unit->unit / p->row_blocks;
    unit->kv_head = plane % p->kv_heads;
    unit->batch = plane / p->kv_heads;
    unit->first_row = row_block * ROWS;
    unit->rows = min((uint)ROWS, p->group * p->q_len - unit->first_row);
    unit->key_begin = p->key_begin + unit->split * p->split_keys;
    unit->key_end = min(unit->key_begin + p->split_keys, p->key_end);
    unit->first_score = 0;
    const uint positions_end = POSITIONS_END(p);
    unit->any_begin = unit->all_end = (int)positions_end;
    unit->any_end = unit->all_begin = 0;
    for (uint r = 0; r < ROWS; ++r) {
        const uint row = unit->first_row + min(r, unit->rows - 1);
        unit->head[r] = unit->kv_head * p->group + row / p->q_len;
        unit->token[r] = row % p->q_len;
        const long position = p->q_offset + (long)unit->token[r];
        long begin = p->window_left ? position - p->window_left + 1 : 0;
        long end = p->is_causal ? position + 1 : (long)positions_end;
        if (p->window_right) end = min(end, position + p->window_right + 1);
        unit->see_begin[r] = clamp_position(begin, positions_end);
        unit->see_end[r] = clamp_position(end, positions_end);
        unit->any_begin = min(unit->any_begin, unit->see_begin[r]);
        unit->any_end = max(unit->any_end, unit->see_end[r]);
        unit->all_begin = max(unit->all_begin, unit->see_begin[r]);
        unit->all_end = min(unit->all_end, unit->see_end[r]);
    }
}

/* Scores that this launch does not read again go past the caches: an ordinary store would read the line first, twice
 * the traffic. Only where the processor has such stores, and lines that are whole. */
#if defined(__x86_64__) && defined(__has_builtin)
#if __has_builtin(__builtin_nontemporal_store)
#define STREAMS_SEGMENTS
#endif
#endif
static inline void stream_part_f32(__global uchar* row, uint first, float16 x, uint count) {
#ifdef STREAMS_SEGMENTS
    __global float16* line = (__global float16*)((__global float*)row + first);
    if (count == 16 && (ulong)line % sizeof(float16) == 0) {
        __builtin_nontemporal_store(x, line);
        return;
    }
#endif
    store_floats((__global float*)row + first, count, x);
}

/* ---- Rows of the tensors ---- */

static inline const __global uchar* q_row(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                          uint r) {
    return memory->q + p->q.offset + unit->batch * p->q.stride[0] + unit->head[r] * p->q.stride[1] +
           unit->token[r] * p->q.stride[2];
}

static inline __global uchar* out_row(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                      uint r) {
    return memory->out + p->out.offset + unit->batch * p->out.stride[0] + unit->head[r] * p->out.stride[1] +
           unit->token[r] * p->out.stride[2];
}

static inline __global uchar* scores_row(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                         uint r) {
    return memory->scores + p->scores.offset + unit->batch * p->scores.stride[0] + unit->head[r] * p->scores.stride[1] +
           unit->token[r] * p->scores.stride[2] + unit->first_score * sizeof(float);
}

static inline const __global uchar* mask_row(const sdpa_params* p, const sdpa_memory* memory,
                                             const sdpa_work_tile* unit, uint r) {
    return memory->mask + p->mask.offset + (unit->batch % p->mask_batch) * p->mask.stride[0] +
           (unit->head[r] % p->mask_heads) * p->mask.stride[1] + unit->token[r] * p->mask.stride[2];
}

/* What a KV head has of a segment's tensor: its rows, slot map or mean. */
static inline const __global uchar* plane(const __global uchar* memory, const tensor_view* view, const sdpa_params* p,
                                          const sdpa_work_tile* unit) {
    return memory + view->offset + (unit->batch / p->kv_share) * view->stride[0] + unit->kv_head * view->stride[1];
}

static inline float per_head(const __global uchar* values, winnow_u64 offset, uint head) {
    return load_f32(values + offset, head);
}

/* ---- What is added to logits ---- */

static inline float mask_element(const __global uchar* row, uint type, uint key) {
    return type == TYPE_BOOL ? (row[key] ? 0.0f : -INFINITY) : load_any(row, type, key);
}

/* 16 mask values for keys from `key`, -INFINITY from `count` on; a boolean mask becomes 0 and -INFINITY. */
static inline float16 load16_mask(const sdpa_params* p, const __global uchar* row, uint key, uint count) {
    const uint type = p->mask_type;
    if (p->mask_key_broadcast || count < 16) {
        float lanes[16];
        for (uint lane = 0; lane < 16; ++lane)
            lanes[lane] = lane < count ? mask_element(row, type, p->mask_key_broadcast ? 0 : key + lane) : -INFINITY;
        return vload16(0, lanes);
    }
    if (type == TYPE_BOOL)
        return select((float16)(-INFINITY), (float16)(0.0f), convert_int16(vload16(0, row + key)) != 0);
    return type == TYPE_F32 ? load16_f32(row, key, count) : load16_f16(row, key, count);
}

/* 16 halves, given in 16 bits each, as floats. */
static inline float16 halves_as_floats(ushort16 bits) {
#ifdef HAS_AVX512_BUILTINS
    return __builtin_ia32_vcvtph2ps512_mask(as_short16(bits), (float16)(0.0f), (ushort)-1, 4);
#else
    return vload_half16(0, (const half*)&bits);
#endif
}

/* The same for slots, by position; -INFINITY where the mask has no column. */
static inline float16 gather16_mask(const sdpa_params* p, const __global uchar* row, int16 position) {
    const uint16 column = as_uint16(p->mask_key_broadcast ? min(position, (int16)(0)) : position);
    uint at[16];
    vstore16(min(column, (uint16)(p->mask_columns - 1)), 0, at);
    float16 x;
    if (p->mask_type == TYPE_F16) { /* one conversion for all */
        ushort bits[16];
        for (uint lane = 0; lane < 16; ++lane) bits[lane] = ((const __global ushort*)row)[at[lane]];
        x = halves_as_floats(vload16(0, bits));
    } else {
        float lanes[16];
        for (uint lane = 0; lane < 16; ++lane) lanes[lane] = mask_element(row, p->mask_type, at[lane]);
        x = vload16(0, lanes);
    }
    return select(x, (float16)(-INFINITY), column >= p->mask_columns);
}

static inline int any_lane(int16 x) {
    const int8 x8 = x.lo | x.hi;
    const int4 x4 = x8.lo | x8.hi;
    return (x4.x | x4.y | x4.z | x4.w) != 0;
}

static inline int largest_lane(int16 x) {
    const int8 x8 = max(x.lo, x.hi);
    const int4 x4 = max(x8.lo, x8.hi);
    return max(max(x4.x, x4.y), max(x4.z, x4.w));
}

/* How many of a tile's `count` keys lie in its 16 from 16 * i. */
static inline uint part_of_tile(uint count, uint i) { return count > i * 16 ? min(count - i * 16, 16u) : 0; }

/* ---- Where the keys of a tile are ---- */

/* The positions of 16 keys from `key` on, of which `count` exist; negative where there is none. */
static inline int16 positions16(const __global int* slots, uint key, uint count) {
#if SLOTS
    int16 position;
    if (count == 16) {
        position = vload16(0, slots + key);
    } else {
        int lanes[16];
        for (uint lane = 0; lane < 16; ++lane) lanes[lane] = lane < count ? slots[key + lane] : -1;
        position = vload16(0, lanes);
    }
    return position & ~(1 << 30); /* an anchor's flag; what is negative remains so */
#else
    return select((int16)(-1), (int)key + LANE_INDEX, LANE_INDEX < (int)count);
#endif
}

/* Whether every row sees all of `count` keys from `key` on, or none any of them, as far as causality and window say.
 * position: [vectors]. */
static inline void sdpa_classify(const sdpa_work_tile* unit, const int16* position, const uint vectors, uint key,
                                 uint count, int* all, int* none) {
#if SLOTS
    int16 any_seen = 0, any_hidden = 0;
    for (uint i = 0; i < vectors; ++i) {
        any_seen |= (position[i] >= unit->any_begin) & (position[i] < unit->any_end);
        any_hidden |= ((position[i] < unit->all_begin) | (position[i] >= unit->all_end)) &
                      (LANE_INDEX < (int)part_of_tile(count, i));
    }
    *none = !any_lane(any_seen);
    *all = !any_lane(any_hidden);
#else
    *none = (int)key >= unit->any_end || (int)(key + count) <= unit->any_begin;
    *all = (int)key >= unit->all_begin && (int)(key + count) <= unit->all_end;
#endif
}

/* Whether logits pass through sdpa_transform even where every key is seen; the same for the whole launch. */
static inline int sdpa_has_transform(const sdpa_params* p) {
    return p->mask_type != TYPE_NONE || p->has_alibi || p->softcap != 0.0f || p->scores_mode != SDPA_SCORES_NONE;
}

/* Takes 16 scaled logits of row r, for the keys from `key` of which `count` exist, through softcap, mask, ALiBi,
 * causality and window, and segments them at the stage that scores_out wants. `bias` is what the mask gave. Returns the
 * logits, with NO_MAXIMUM for keys that are not seen; *seen is -1 in the lanes that are. */
static inline float16 sdpa_transform(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                     uint r, uint key, uint count, int16 position, float16 s, float16 bias,
                                     int16* seen) {
    float16 stage = s;
    if (p->softcap != 0.0f) s = p->softcap * tanh16(s / p->softcap);
    if (p->scores_mode == SDPA_SCORES_SOFTCAPPED) stage = s;

    int16 visible = (position >= unit->see_begin[r]) & (position < unit->see_end[r]);
    if (p->mask_type != TYPE_NONE) {
        visible &= bias != -INFINITY;
        s += p->has_slopes ? per_head(memory->slopes, p->slopes_offset, unit->head[r]) * bias : bias;
    }
    if (p->has_alibi) {
        /* A difference of integers first: it is exact where the query's position is within 2^30, as a key's is. */
        const long query = p->q_offset + (long)unit->token[r];
        const int near = (int)clamp(query, -(1L << 30), 1L << 30);
        const float16 distance = convert_float16(position - near) - (float)(query - near);
        s += per_head(memory->alibi, p->alibi_offset, unit->head[r]) * distance;
    }
    visible &= s != -INFINITY;
    if (p->scores_mode >= SDPA_SCORES_BIASED) stage = select((float16)(-INFINITY), s, visible);
    if (p->scores_mode != SDPA_SCORES_NONE && r < unit->rows) {
        __global uchar* row = scores_row(p, memory, unit, r);
        if (p->scores_mode == SDPA_SCORES_PROBS)
            store_floats((__global float*)row + key, count, stage);
        else
            stream_part_f32(row, key, stage, count);
    }
    *seen = visible;
    return select((float16)(NO_MAXIMUM), s, visible);
}

/* The scores of `count` keys that no row of the block sees. */
static inline void sdpa_store_unseen(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                     uint key, uint count) {
    for (uint r = 0; r < unit->rows; ++r) {
        __global uchar* row = scores_row(p, memory, unit, r);
        for (uint i = 0; i < count; ++i) store_f32(row, key + i, -INFINITY);
    }
}

/* ---- Results ---- */

/* Probabilities from logits, in place, once a row's maximum and sum are known. */
static inline void sdpa_normalise(const sdpa_params* p, __global uchar* row, float maximum, float inverse) {
    for (uint key = 0; key < p->kv_len; key += 16) {
        const uint count = min(p->kv_len - key, 16u);
        __global float* part = (__global float*)row + key;
        const float16 s = load_floats(part, count, 0.0f);
        const float16 probability = select((float16)(0.0f), exp16(s - maximum) * inverse, s != -INFINITY);
        store_floats(part, count, probability);
    }
}

/* Everything a row has after its last key: the sink joins; statistics, probabilities and the count of values passed
 * over are stored. Returns the factor that the accumulated values still need; 0 for a row that saw no key. */
static inline float sdpa_finish_row(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit, uint r,
                                    float maximum, float sum, uint skipped) {
    float scale = 1.0f;
    const bool saw_nothing = sum == 0.0f;
    if (saw_nothing) {
        maximum = -INFINITY;
    } else if (p->has_sinks) {
        const float sink = per_head(memory->sinks, p->sinks_offset, unit->head[r]);
        const float joined = sink > maximum ? sink : maximum;
        scale = exp1(maximum - joined);
        sum = sum * scale + exp1(sink - joined);
        maximum = joined;
    }
    const float inverse = saw_nothing ? 0.0f : 1.0f / sum;
    if (p->has_stats) {
        __global uchar* row = memory->stats + p->stats.offset + unit->batch * p->stats.stride[0] +
                              unit->head[r] * p->stats.stride[1] + unit->token[r] * p->stats.stride[2];
        store_f32(row, 0, maximum);
        store_f32(row, 1, sum);
    }
    if (p->has_skipped) {
        __global uchar* row = memory->skipped + p->skipped.offset + unit->batch * p->skipped.stride[0] +
                              unit->head[r] * p->skipped.stride[1] + unit->token[r] * p->skipped.stride[2];
        *(__global uint*)row = skipped;
    }
    if (p->scores_mode == SDPA_SCORES_PROBS)
        sdpa_normalise(p, scores_row(p, memory, unit, r), saw_nothing ? 0.0f : maximum, inverse);
    return scale * inverse;
}

/* A row of out from its accumulator, which is used up. accumulator: [V_CHUNKS]. */
static inline void sdpa_store_out(const sdpa_params* p, __global uchar* row, float16* accumulator, float factor) {
    for (uint chunk = 0; chunk < V_CHUNKS; ++chunk) accumulator[chunk] *= factor;
#if V_HEAD_SIZE < 16
    float lanes[16];
    vstore16(accumulator[0], 0, lanes);
    for (uint lane = 0; lane < V_HEAD_SIZE; ++lane) store_any(row, p->out_type, lane, lanes[lane]);
#else
    for (uint chunk = 0; chunk < V_CHUNKS; ++chunk)
        store16_any(row, p->out_type, CHUNK_START(chunk, V_HEAD_SIZE), accumulator[chunk]);
#endif
}

#if STEP
#include "sdpa_importance.h"
#else
typedef char sdpa_rows_end; /* a step alone asks how rows end */
#define sdpa_begin_end(end)
#define sdpa_note_end(end, r, maximum, factor)
#define sdpa_importance(p, memory, unit, end)
#define sdpa_leave(p, memory, unit, segment, key, s, are_scores)
#define sdpa_leave_seen(p, memory, unit, segment, key, maximum, by_any, by_all, seen)
#endif

/* What a group has when it has seen its keys. Rows past unit.rows are there, and mean nothing. */
typedef struct sdpa_result {
    float16* accumulator; /* [ROWS][V_CHUNKS], used up */
    float* maximum;       /* [ROWS_OF_16] */
    float* sum;           /* [ROWS] */
    uint* skipped;        /* [ROWS] */
} sdpa_result;

/* The result of a unit that was not split. */
static inline void sdpa_store_result(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                     const sdpa_result* result) {
    sdpa_rows_end end;
    sdpa_begin_end(&end);
    for (uint r = 0; r < unit->rows; ++r) {
        const float factor =
            sdpa_finish_row(p, memory, unit, r, result->maximum[r], result->sum[r], result->skipped[r]);
        sdpa_store_out(p, out_row(p, memory, unit, r), result->accumulator + r * V_CHUNKS, factor);
        sdpa_note_end(&end, r, result->maximum[r], factor);
    }
    sdpa_importance(p, memory, unit, &end);
}

static inline __global float* sdpa_partial(const sdpa_params* p, const sdpa_memory* memory, uint unit, uint split) {
    return (__global float*)(memory->scratch + SDPA_COUNTER_BYTES) +
           ((ulong)unit * p->splits + split) * p->partial_floats;
}

/* The result of one split, for sdpa_combine_tile. */
static inline void sdpa_store_partial(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                      const sdpa_result* result) {
    __global float* partial = sdpa_partial(p, memory, unit->unit, unit->split);
    for (uint i = 0; i < ROWS * V_CHUNKS; ++i) vstore16(result->accumulator[i], i, partial);
    partial += ROWS * V_CHUNKS * 16;
    for (uint r = 0; r < ROWS; ++r) {
        partial[r] = result->maximum[r];
        partial[ROWS + r] = result->sum[r];
        partial[2 * ROWS + r] = as_float(result->skipped[r]);
    }
}

static inline void sdpa_combine_tile(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit) {
    sdpa_rows_end end;
    sdpa_begin_end(&end);
    for (uint r = 0; r < unit->rows; ++r) {
        float maximum = NO_MAXIMUM;
        for (uint split = 0; split < p->splits; ++split) {
            const float other = sdpa_partial(p, memory, unit->unit, split)[ROWS * V_CHUNKS * 16 + r];
            maximum = other > maximum ? other : maximum;
        }
        float sum = 0.0f;
        uint skipped = 0;
        float16 accumulator[V_CHUNKS];
        for (uint chunk = 0; chunk < V_CHUNKS; ++chunk) accumulator[chunk] = (float16)(0.0f);
        for (uint split = 0; split < p->splits; ++split) {
            const __global float* partial = sdpa_partial(p, memory, unit->unit, split);
            const float factor = exp1(partial[ROWS * V_CHUNKS * 16 + r] - maximum);
            sum = fma(partial[ROWS * V_CHUNKS * 16 + ROWS + r], factor, sum);
            skipped += as_uint(partial[ROWS * V_CHUNKS * 16 + 2 * ROWS + r]);
            for (uint chunk = 0; chunk < V_CHUNKS; ++chunk)
                accumulator[chunk] = fma(vload16(r * V_CHUNKS + chunk, partial), (float16)(factor), accumulator[chunk]);
        }
        const float factor = sdpa_finish_row(p, memory, unit, r, maximum, sum, skipped);
        sdpa_store_out(p, out_row(p, memory, unit, r), accumulator, factor);
        sdpa_note_end(&end, r, maximum, factor);
    }
    sdpa_importance(p, memory, unit, &end);
}

/* Where a group leaves its result. With SINGLE_LAUNCH the last group of a unit to get here combines; otherwise
 * sdpa_combine, launched after, does. */
static inline void sdpa_leave_result(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                     const sdpa_result* result) {
    if (p->splits == 1) {
        sdpa_store_result(p, memory, unit, result);
        return;
    }
    sdpa_store_partial(p, memory, unit, result);
#if SINGLE_LAUNCH
    volatile __global atomic_uint* counter = (volatile __global atomic_uint*)memory->scratch + unit->unit;
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_device);
    const uint done = atomic_fetch_add_explicit(counter, 1u, memory_order_acq_rel, memory_scope_device) + 1;
    if (done == p->splits) {
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
        sdpa_combine_tile(p, memory, unit);
        atomic_store_explicit(counter, 0u, memory_order_relaxed, memory_scope_device);
    }
#endif
}
