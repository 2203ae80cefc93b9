/* What groups of many work-items do with the slots of a KV head in an eviction pass: keys, lists of slots, and rows
 * that move, of which a work-item takes one of K or of V as the shape "cpu" does. All work-items call each function;
 * what it stores is there for all when it has returned. Needs before it: slot_head.h, slot_group_select.h and what
 * comes before slot_tier_rows.h. */

/* Two lists of slots (slot_evict_params.h). */
typedef struct slot_lists {
    __global uint *moving, *free;
} slot_lists;

static inline slot_lists lists_of(const slot_evict_params* p, __global uchar* scratch) {
    uint largest = p->packed.slots;
#if TIERS > 1
    largest = max(largest, p->lower[0].slots);
#endif
#if TIERS > 2
    largest = max(largest, p->lower[1].slots);
#endif
    slot_lists lists;
    lists.moving = (__global uint*)(scratch + p->lists_at);
    lists.free = lists.moving + p->dense.slots + largest;
    return lists;
}

static inline float importance_of(const head_slots* at, uint slot) {
    if (!at->importance) return 0.0f;
    const float x = at->importance[slot];
    return isnan(x) ? -INFINITY : x;
}

ALWAYS_INLINE uint count_free(const head_slots* at, __local select_state* s) {
    uint count = 0;
    for (uint slot = LANE; slot < at->slots; slot += GROUP_SIZE) count += at->tokens[slot] < 0;
    return sum_of_group(&s->sums, count);
}

/* Mean of the rows that live in the residual window, as they stand for values. */
ALWAYS_INLINE void set_mean(const slot_evict_params* p, const head_slots* dense, const __global uchar* rows,
                            long stride, uint type, uint size, const __global float* plus, __global float* mean,
                            __local select_state* s) {
    uint live = 0;
    for (uint i = LANE; i < p->residual_count; i += GROUP_SIZE) live += dense->tokens[p->residual_first + i] >= 0;
    live = sum_of_group(&s->sums, live);
    for (uint e = LANE; e < size; e += GROUP_SIZE) {
        float sum = 0.0f;
        for (uint i = 0; i < p->residual_count; ++i)
            if (dense->tokens[p->residual_first + i] >= 0)
                sum += load_any(rows + (p->residual_first + i) * stride, type, e);
        if (live > 0) sum /= (float)live;
        if (plus && live > 0) sum += plus[e];
        mean[e] = sum;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* Keys that order the importances of live slots; returns how many there are. */
ALWAYS_INLINE uint make_importance_keys(const head_slots* at, __local select_state* s) {
    uint live = 0;
    for (uint slot = LANE; slot < in_whole_vectors(at->slots); slot += GROUP_SIZE) {
        const int is_live = slot < at->slots && at->tokens[slot] >= 0;
        at->keys[slot] = is_live ? ordered_bits_of(importance_of(at, slot)) : NO_KEY;
        live += is_live;
    }
    return sum_of_group(&s->sums, live);
}

/* The prediction of the head's network (backend/device/network.hpp). */
static inline float by_network(const __global float* network, float importance, int queries_seen) {
    const float kept = fmin(fmax(importance, SMALLEST_IMPORTANCE_INPUT), LARGEST_IMPORTANCE_INPUT);
    const float by_importance = log(kept), by_age = log((float)max(queries_seen, 1));
    float sum = 0.0f;
    for (uint i = 0; i < HIDDEN_UNITS; ++i) {
        const float4 unit = vload4(i, network); /* importance, age, bias, out */
        const float hidden = fma(by_importance, unit.x, fma(by_age, unit.y, unit.z));
        sum = fma(fmax(hidden, 0.0f), unit.w, sum);
    }
    return sum;
}

static inline float rank_of(const slot_evict_params* p, const head_slots* at, const __global float* network, uint head,
                            uint slot, int position, float importance) {
    const slot_eviction* pass = &p->pass;
    const __global uchar* value = at->v + slot * at->v_stride;
    switch (pass->ranking) {
    case RANKING_AGE: return 0.0f; /* the position follows in the key */
    case RANKING_IMPORTANCE_VALUE_DISTANCE:
        return importance * (at->tier > 0 ? tier_distance(at, value, p->v_size)
                                          : dense_distance(value, at->v_type, at->point, p->v_size));
    case RANKING_RANDOM: return random_rank(pass->of_ranking, p->first_head + head, position);
    case RANKING_PREDICTION: return by_network(network, importance, pass->seen - position);
    }
    return importance;
}

/* The keys of a segment's slots. Importances below threshold + rest are below the threshold. */
ALWAYS_INLINE void make_keys(const slot_evict_params* p, const head_slots* at, const __global int* positions,
                             const __global float* network, uint head, float threshold, float rest, head_counts* counts,
                             __local select_state* s) {
    const slot_eviction* pass = &p->pass;
    head_counts mine = {0, 0, 0};
    for (uint slot = LANE; slot < in_whole_vectors(at->slots); slot += GROUP_SIZE) {
        at->keys[slot] = NO_KEY;
        if (slot >= at->slots || at->tokens[slot] < 0) continue;
        const int token = at->tokens[slot], token_id = token & (ANCHOR_FLAG - 1);
        const int position = positions ? positions[token_id] : token_id;
        const int is_candidate =
            (token & ANCHOR_FLAG) == 0 && position >= pass->protected_below && position < pass->protected_from;
        const float importance = importance_of(at, slot);
        const int is_below = !pass->has_threshold || importance < threshold ||
                             (importance == threshold && rest > 0.0f) || importance == -INFINITY;
        const int is_preferred =
            is_candidate && is_below && position >= pass->eligible_from && position < pass->eligible_until;
        mine.live += 1;
        mine.preferred += is_preferred;
        mine.others += is_candidate && !is_preferred;
        if (TIERS == 1 && !is_candidate) continue;
        const float rank = rank_of(p, at, network, head, slot, position, importance);
        at->keys[slot] = (is_preferred ? 0 : KEY_CLASS) | (TIERS > 1 && !is_candidate ? KEY_PROTECTED : 0) |
                         (ulong)ordered_bits_of(rank) << 30 | (uint)position;
    }
    counts->live += sum_of_group(&s->sums, mine.live);
    counts->preferred += sum_of_group(&s->sums, mine.preferred);
    counts->others += sum_of_group(&s->sums, mine.others);
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* Frees the slots within the bound; returns how many those are. */
ALWAYS_INLINE uint free_within(const head_slots* at, slot_bound bound, uint first_index, __local select_state* s) {
    uint freed = 0;
    for (uint slot = LANE; slot < at->slots; slot += GROUP_SIZE) {
        if (!is_within(bound, at->keys[slot], first_index + slot)) continue;
        at->tokens[slot] = FREE_SLOT;
        ++freed;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return sum_of_group(&s->sums, freed);
}

/* The keys of what leaves the residual window alone, in the places that they have among the dense keys. Returns how
 * many of the rows are live. */
ALWAYS_INLINE uint take_leaving_keys(const slot_evict_params* p, const head_slots* dense, __global ulong* leaving_keys,
                                     __local select_state* s) {
    uint live = 0;
    for (uint i = LANE; i < in_whole_vectors(dense->slots); i += GROUP_SIZE) leaving_keys[i] = NO_KEY;
    barrier(CLK_GLOBAL_MEM_FENCE);
    for (uint i = LANE; i < p->leaving_count; i += GROUP_SIZE) {
        const uint slot = residual_slot(p, i);
        leaving_keys[slot] = dense->keys[slot];
        live += dense->tokens[slot] >= 0;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return sum_of_group(&s->sums, live);
}

/* The first free slots, at least `most` of them where there are so many. Returns how many. */
ALWAYS_INLINE uint list_free(const head_slots* at, uint most, __global uint* list, __local select_state* s) {
    uint count = 0;
    for (uint tile = 0; tile < at->slots && count < most; tile += SLOTS_AT_ONCE) {
        const uint first = tile + LANE * SLOTS_OF_LANE;
        uint flags = 0;
        for (uint i = 0; i < SLOTS_OF_LANE && first + i < at->slots; ++i)
            flags |= (uint)(at->tokens[first + i] < 0) << i;
        count = append_flagged(list, count, first, flags, &s->sums);
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return count;
}

/* What leaves and has a key within the bound, or is live where there is none: numbers of leaving rows. */
ALWAYS_INLINE uint list_leaving(const slot_evict_params* p, const head_slots* dense, const __global ulong* leaving_keys,
                                slot_bound bound, __global uint* list, __local select_state* s) {
    uint count = 0;
    for (uint tile = 0; tile < p->leaving_count; tile += SLOTS_AT_ONCE) {
        const uint first = tile + LANE * SLOTS_OF_LANE;
        uint flags = 0;
        for (uint i = 0; i < SLOTS_OF_LANE && first + i < p->leaving_count; ++i) {
            const uint slot = residual_slot(p, first + i);
            flags |= (uint)(leaving_keys ? is_within(bound, leaving_keys[slot], slot) : dense->tokens[slot] >= 0) << i;
        }
        count = append_flagged(list, count, first, flags, &s->sums);
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return count;
}

#if TIERS > 1
/* Keys by which rows go down, of those that are no victims: whether they are protected, rank, position; of the first
 * segment's rows and those that leave, where they move by age, without the rank. */
ALWAYS_INLINE void make_moving_keys(const slot_evict_params* p, const head_slots* at) {
    const ulong kept = p->moves_by_age && at->tier <= 1 ? KEY_PROTECTED | KEY_POSITION : ~KEY_CLASS;
    for (uint slot = LANE; slot < at->slots; slot += GROUP_SIZE)
        at->keys[slot] = at->tokens[slot] >= 0 ? at->keys[slot] & kept : NO_KEY;
    barrier(CLK_GLOBAL_MEM_FENCE);
}

ALWAYS_INLINE void move_rows_down(const slot_evict_params* p, const head_slots* dense, const head_slots* from,
                                  const head_slots* to, const __global ulong* leaving_keys, uint count,
                                  __global float* row, slot_lists lists, __local select_state* s) {
    const uint has_dense = from->tier == 1, first = in_whole_vectors(dense->slots);
    const slot_keys keys = moving_keys(dense, from, leaving_keys);
    make_moving_keys(p, from);
    const slot_bound bound = smallest_slots(&keys, count, s);
    const uint leaving = has_dense ? list_leaving(p, dense, leaving_keys, bound, lists.moving, s) : 0;
    uint moving = leaving;
    for (uint tile = 0; tile < from->slots; tile += SLOTS_AT_ONCE) {
        const uint begin = tile + LANE * SLOTS_OF_LANE;
        uint flags = 0;
        for (uint i = 0; i < SLOTS_OF_LANE && begin + i < from->slots; ++i)
            flags |= (uint)is_within(bound, from->keys[begin + i], first + begin + i) << i;
        moving = append_flagged(lists.moving, moving, begin, flags, &s->sums);
    }
    moving = min(moving, list_free(to, moving, lists.free, s));
    for (uint i = LANE % (GROUP_SIZE / 2); i < moving; i += GROUP_SIZE / 2) {
        const head_slots* at = i < leaving ? dense : from;
        const uint slot = i < leaving ? residual_slot(p, lists.moving[i]) : lists.moving[i];
        if (LANE < GROUP_SIZE / 2) {
            move_k_down(p, at, slot, to, lists.free[i], row);
        } else {
            move_v_down(p, at, slot, to, lists.free[i], row);
            move_entry_down(at, slot, to, lists.free[i]);
        }
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
}

/* Rows go down from each packed segment that lacks slots, the lowest first. */
ALWAYS_INLINE void make_room_in_tiers(const slot_evict_params* p, const head_slots* dense, const head_slots* packed,
                                      __global ulong* leaving_keys, __global float* row, slot_lists lists,
                                      __local select_state* s) {
    make_moving_keys(p, dense);
    const uint leaving = take_leaving_keys(p, dense, leaving_keys, s);
    long needed = leaving + max(p->wanted_free, p->wanted_first), others = leaving, free[TIERS], moved[TIERS];
    for (uint t = 0; t < TIERS; ++t) {
        free[t] = count_free(packed + t, s);
        moved[t] = min(max(needed - free[t], 0L), others + packed[t].slots - free[t]);
        needed = moved[t];
        others = 0;
    }
    moved[TIERS - 1] = 0;
    for (int t = TIERS - 2; t >= 0; --t) moved[t] = min(moved[t], free[t + 1] + moved[t + 1]);
    for (int t = TIERS - 2; t >= 0; --t)
        if (moved[t] > 0)
            move_rows_down(p, dense, packed + t, packed + t + 1, leaving_keys, (uint)moved[t], row, lists, s);
}
#endif

/* Returns how many rows leave; the first `free` of them find room, in the slots of the list. */
ALWAYS_INLINE uint move_rows(const slot_evict_params* p, const head_slots* dense, const head_slots* packed,
                             slot_lists lists, uint leaving, uint free) {
    for (uint i = LANE % (GROUP_SIZE / 2); i < leaving; i += GROUP_SIZE / 2) {
        const uint from = residual_slot(p, lists.moving[i]);
        const uint to = i < free ? lists.free[i] : 0;
        if (LANE < GROUP_SIZE / 2) {
            if (i >= free) continue;
            store_k_row(packed->k + to * packed->k_stride, dense->k + from * dense->k_stride, dense->k_mean,
                        packed->k_mean, p->dense.k_type, p->k_size, p->k_norm);
            continue;
        }
        const int token = dense->tokens[from];
        dense->tokens[from] = FREE_SLOT;
        if (i >= free) continue;
        store_v_row(packed->v + to * packed->v_stride, dense->v + from * dense->v_stride, dense->v_mean, packed->v_mean,
                    p->dense.v_type, p->v_size, p->v_norm);
        if (packed->importance) packed->importance[to] = dense->importance ? dense->importance[from] : 0.0f;
        packed->tokens[to] = token;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    return leaving > free ? leaving - free : 0;
}
