/* slot_evict: selects the victims of a KV head, frees their slots, takes the residual window's oldest rows into the
 * packed segment, and rows from packed segments that are full into the ones below. "cpu" shape: one work-item per
 * work-group, a group for each KV head, and vectors of 16 slots.
 *
 *     dense  | sinks | residual window: leaving rows | newer rows |       packed | . x . . x . x . |     x: victims
 *                                        \___________________________________________/     /     /
 *
 *     1. the packed segment's means, where they are set from the residual window
 *     2. a key for each slot (slot_select.h), and the threshold it needs: a quantile of the importances
 *     3. the bound up to which slots are victims: as many as the budget requires, and as many as the leaving rows and
 *        the slots that are wanted free need
 *     4. the slot maps without those, rows of full packed segments down (slot_tiers.h), the leaving rows into free
 *        slots, the list of free slots, the head's state
 *
 * Layouts: slot_evict_params.h. Needs -D:
 *     K_FORMAT, V_FORMAT   of the packed segment; the dense segment is f32, f16 or bf16
 *     USES_F               of each packed format F of them
 *     K_SIZE, V_SIZE       elements of a row, up to 576, where one of the side's formats is rotated
 *     TIERS                how many packed segments, where there are several; K_FORMAT_2, V_FORMAT_2, ... are theirs
 */
#include "one_work_item.h"
#include "slot_evict_params.h"

#if !defined(K_FORMAT) || !defined(V_FORMAT)
#error "slot_evict.cl needs -D K_FORMAT and V_FORMAT"
#endif

#ifndef TIERS
#define TIERS 1
#endif
#define KEY_RUNS (1 + TIERS)

#include "float16_math.h"
#include "formats.h"
#include "format_any.h"
#include "rotation.h"
#include "kv_rows.h"
#include "slot_parts.h"
#include "slot_store_row.h"
#include "ordered_bits.h"
#include "slot_keys.h"
#include "slot_select.h"
#include "slot_head.h"
#include "slot_values.h"
#include "slot_packed_values.h"

static inline uint sum_of_int_lanes(int16 x) {
    const int8 x8 = x.lo + x.hi;
    const int4 x4 = x8.lo + x8.hi;
    return (uint)(x4.x + x4.y + x4.z + x4.w);
}

static inline float16 importance16(const head_slots* at, uint slot) {
    if (!at->importance) return (float16)(0.0f);
    const float16 x = load_floats(at->importance + slot, at->slots - slot, 0.0f);
    return select(x, (float16)(-INFINITY), isnan(x));
}

/* Mean of the rows that live in the residual window, as they stand for values. */
static void set_mean(const slot_evict_params* p, const head_slots* dense, const __global uchar* rows, long stride,
                     uint type, uint size, const __global float* plus, __global float* mean) {
    uint live = 0;
    for (uint i = 0; i < p->residual_count; ++i) live += dense->tokens[p->residual_first + i] >= 0;
    for (uint e = 0; e < size; e += 16) {
        const uint count = min(size - e, 16u);
        float16 sum = (float16)(0.0f);
        for (uint i = 0; i < p->residual_count; ++i) {
            if (dense->tokens[p->residual_first + i] < 0) continue;
            const __global uchar* row = rows + (p->residual_first + i) * stride;
            if (count == 16) {
                sum += load16_any(row, type, e);
                continue;
            }
            float lanes[16] = {0.0f};
            for (uint lane = 0; lane < count; ++lane) lanes[lane] = load_any(row, type, e + lane);
            sum += vload16(0, lanes);
        }
        if (live > 0) sum /= (float)live;
        if (plus && live > 0) sum += load_floats(plus + e, count, 0.0f);
        store_floats(mean + e, count, sum);
    }
}

/* Keys that order the importances of live slots; returns how many there are. */
static uint make_importance_keys(const head_slots* at) {
    int16 live = (int16)(0);
    for (uint slot = 0; slot < at->slots; slot += 16) {
        const int16 is_live = load_ints(at->tokens + slot, at->slots - slot, FREE_SLOT) >= 0;
        const ulong16 key = convert_ulong16(ordered_bits(importance16(at, slot)));
        vstore16(select((ulong16)(NO_KEY), key, convert_long16(is_live)), 0, at->keys + slot);
        live -= is_live;
    }
    return sum_of_int_lanes(live);
}

static uint count_free(const head_slots* at) {
    uint count = 0;
    for (uint slot = 0; slot < at->slots; ++slot) count += at->tokens[slot] < 0;
    return count;
}

#include "slot_tier_rows.h"
#if TIERS > 1
#include "slot_tiers.h"
#endif

/* I times the distance of the value, in the lanes that are asked for. */
static float16 by_value(const slot_evict_params* p, const head_slots* at, uint slot, float16 importance,
                        int16 is_asked) {
    float distances[16];
    int asked[16];
    vstore16(is_asked, 0, asked);
    for (uint lane = 0; lane < 16; ++lane) {
        distances[lane] = 0.0f;
        if (!asked[lane]) continue;
        const __global uchar* row = at->v + (slot + lane) * at->v_stride;
        distances[lane] =
            at->tier > 0 ? tier_distance(at, row, p->v_size) : dense_distance(row, at->v_type, at->point, p->v_size);
    }
    return importance * vload16(0, distances);
}

static float16 by_chance(const slot_evict_params* p, uint head, int16 position) {
    int positions[16];
    float ranks[16];
    vstore16(position, 0, positions);
    for (uint lane = 0; lane < 16; ++lane)
        ranks[lane] = random_rank(p->pass.of_ranking, p->first_head + head, positions[lane]);
    return vload16(0, ranks);
}

/* The prediction of the head's network (backend/device/network.hpp). */
static float16 by_network(const __global float* network, float16 importance, int16 queries_seen) {
    const float16 kept = fmin(fmax(importance, SMALLEST_IMPORTANCE_INPUT), LARGEST_IMPORTANCE_INPUT);
    const float16 by_importance = log(kept), by_age = log(convert_float16(max(queries_seen, (int16)(1))));
    float16 sum = (float16)(0.0f);
    for (uint i = 0; i < HIDDEN_UNITS; ++i) {
        const float4 unit = vload4(i, network); /* importance, age, bias, out */
        const float16 hidden = fma(by_importance, (float16)(unit.x), fma(by_age, (float16)(unit.y), (float16)(unit.z)));
        sum = fma(fmax(hidden, (float16)(0.0f)), (float16)(unit.w), sum);
    }
    return sum;
}

/* The keys of a segment's slots. Importances below threshold + rest are below the threshold. */
static void make_keys(const slot_evict_params* p, const head_slots* at, const __global int* positions,
                      const __global float* network, uint head, float threshold, float rest, head_counts* counts) {
    const slot_eviction* pass = &p->pass;
    int16 live = (int16)(0), preferred = (int16)(0), others = (int16)(0);
    for (uint slot = 0; slot < at->slots; slot += 16) {
        const int16 tokens = load_ints(at->tokens + slot, at->slots - slot, FREE_SLOT);
        const int16 is_live = tokens >= 0;
        int16 position = select((int16)(0), tokens & (ANCHOR_FLAG - 1), is_live);
        if (positions) {
            int token_ids[16];
            vstore16(position, 0, token_ids);
            for (uint lane = 0; lane < 16; ++lane)
                if (slot + lane < at->slots && at->tokens[slot + lane] >= 0)
                    token_ids[lane] = positions[token_ids[lane]];
            position = vload16(0, token_ids);
        }
        const int16 is_candidate = is_live & ((tokens & ANCHOR_FLAG) == 0) & (position >= pass->protected_below) &
                                   (position < pass->protected_from);
        const float16 importance = importance16(at, slot);
        const int16 is_below = pass->has_threshold
                                   ? (importance < threshold) | ((importance == threshold) & (int16)(-(rest > 0.0f))) |
                                         (importance == -INFINITY)
                                   : (int16)(-1);
        const int16 is_preferred =
            is_candidate & is_below & (position >= pass->eligible_from) & (position < pass->eligible_until);
        const int16 is_ranked = TIERS > 1 ? is_live : is_candidate;
        float16 rank = importance;
        switch (pass->ranking) {
        case RANKING_AGE: rank = (float16)(0.0f); break; /* the position follows in the key */
        case RANKING_IMPORTANCE_VALUE_DISTANCE: rank = by_value(p, at, slot, importance, is_ranked); break;
        case RANKING_RANDOM: rank = by_chance(p, head, position); break;
        case RANKING_PREDICTION: rank = by_network(network, importance, pass->seen - position); break;
        }
        ulong16 key = select((ulong16)(KEY_CLASS), (ulong16)(0), convert_long16(is_preferred)) |
                      convert_ulong16(ordered_bits(rank)) << 30 | convert_ulong16(as_uint16(position));
#if TIERS > 1
        key |= select((ulong16)(KEY_PROTECTED), (ulong16)(0), convert_long16(is_candidate));
#endif
        vstore16(select((ulong16)(NO_KEY), key, convert_long16(is_ranked)), 0, at->keys + slot);
        live -= is_live;
        preferred -= is_preferred;
        others -= is_candidate & ~is_preferred;
    }
    counts->live += sum_of_int_lanes(live);
    counts->preferred += sum_of_int_lanes(preferred);
    counts->others += sum_of_int_lanes(others);
}

/* Frees the slots within the bound; returns how many those are. */
static uint free_within(const head_slots* at, slot_bound bound, uint first_index) {
    int16 freed = (int16)(0);
    const ulong16 lanes = (ulong16)(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    for (uint slot = 0; slot < at->slots; slot += 16) {
        const ulong16 key = vload16(0, at->keys + slot);
        const ulong16 index = lanes + (first_index + slot);
        const int16 is_victim = convert_int16((key < bound.key) | ((key == bound.key) & (index <= bound.index)));
        const int16 tokens = load_ints(at->tokens + slot, at->slots - slot, FREE_SLOT);
        store_ints(at->tokens + slot, at->slots - slot, select(tokens, (int16)(FREE_SLOT), is_victim));
        freed -= is_victim;
    }
    return sum_of_int_lanes(freed);
}

/* The bound of an eviction pass: as many victims as the budget requires, and as many as free the slots of packed
 * segments that the leaving rows need and that are wanted free. */
static slot_bound bound_of_pass(const slot_evict_params* p, const head_slots* dense, const head_slots* packed,
                                __global ulong* leaving_keys, const head_counts* counts, uint packed_live,
                                slot_demand wanted) {
    const uint first_of_packed = in_whole_vectors(dense->slots);
    const slot_keys all = keys_of(dense, packed);
    long victims = min((long)counts->preferred, max(wanted.required, wanted.allowed));
    if (victims < wanted.required) victims += min((long)counts->others, wanted.required - victims);
    const slot_bound required = smallest_slots(&all, (uint)victims);

    /* A victim in a packed segment or among the leaving rows frees a slot for one of these. */
    slot_keys frees_slots = all;
    frees_slots.run[0] = leaving_keys;
    for (uint i = 0; i < first_of_packed; ++i) leaving_keys[i] = NO_KEY;
    long needed = p->wanted_free;
    for (uint i = 0; i < p->leaving_count; ++i) {
        const uint slot = residual_slot(p, i);
        leaving_keys[slot] = dense->keys[slot];
        needed += dense->tokens[slot] >= 0;
    }
    needed += packed_live;
    for (uint t = 0; t < TIERS; ++t) needed -= packed[t].slots;
    if (needed <= (long)count_within(&frees_slots, required)) return required;
    if (needed > (long)count_below(&frees_slots, NO_CANDIDATE)) {
        const slot_bound all_candidates = {NO_CANDIDATE - 1, 0xffffffffu};
        return all_candidates;
    }
    return later_bound(required, smallest_slots(&frees_slots, (uint)needed));
}

/* Returns how many rows found no room. */
static uint move_rows(const slot_evict_params* p, const head_slots* dense, const head_slots* packed, uint* free_slot) {
    uint homeless = 0;
    for (uint i = 0; i < p->leaving_count; ++i) {
        const uint from = residual_slot(p, i);
        const int token = dense->tokens[from];
        if (token < 0) continue;
        dense->tokens[from] = FREE_SLOT;
        while (*free_slot < packed->slots && packed->tokens[*free_slot] >= 0) ++*free_slot;
        if (*free_slot == packed->slots) {
            ++homeless;
            continue;
        }
        const uint to = *free_slot;
        store_k_row(packed->k + to * packed->k_stride, dense->k + from * dense->k_stride, dense->k_mean, packed->k_mean,
                    p->dense.k_type, p->k_size, p->k_norm);
        store_v_row(packed->v + to * packed->v_stride, dense->v + from * dense->v_stride, dense->v_mean, packed->v_mean,
                    p->dense.v_type, p->v_size, p->v_norm);
        if (packed->importance) packed->importance[to] = dense->importance ? dense->importance[from] : 0.0f;
        packed->tokens[to] = token;
    }
    return homeless;
}

/* The pass of one KV head. scratch: memory of the head's (slot_evict_params.h). */
OUT_OF_LINE static void evict_of_head(const slot_evict_params* p, head_slots dense, head_slots* packed,
                                      __global float* sum, const __global uchar* positions_of,
                                      const __global float* network, __global uchar* free_slots, __global uchar* states,
                                      __global uchar* scratch, uint head) {
    const slot_eviction* pass = &p->pass;
    const __global int* positions = positions_of ? (const __global int*)(positions_of + p->positions) : 0;
    __global ulong* leaving_keys = place_keys(p, &dense, packed, scratch);

    if (p->set_means && packed->k_mean)
        set_mean(p, &dense, dense.k, dense.k_stride, p->dense.k_type, p->k_size, dense.k_mean, packed->k_mean);
    if (p->set_means && packed->v_mean)
        set_mean(p, &dense, dense.v, dense.v_stride, p->dense.v_type, p->v_size, dense.v_mean, packed->v_mean);

    float threshold = 0.0f, rest = 0.0f;
    if (pass->has_threshold) {
        uint live = make_importance_keys(&dense);
        for (uint t = 0; t < TIERS; ++t) live += make_importance_keys(packed + t);
        const slot_keys all = keys_of(&dense, packed);
        const float quantile =
            live == 0 ? -INFINITY : from_ordered_bits((uint)smallest_key(&all, quantile_rank(pass, live)));
        threshold = threshold_of(pass, quantile, &rest);
    }
    if (pass->ranking == RANKING_IMPORTANCE_VALUE_DISTANCE) {
        compare_values(dense.point, sum, p->outputs, dense.v_mean, p->v_size);
        for (uint t = 0; t < TIERS; ++t) {
            compare_values(packed[t].point, sum, p->outputs, packed[t].v_mean, p->v_size);
            rotate_point_of(packed + t);
        }
    }
    head_counts counts = {0, 0, 0};
    make_keys(p, &dense, positions, network, head, threshold, rest, &counts);
    const uint dense_live = counts.live;
    for (uint t = 0; t < TIERS; ++t) make_keys(p, packed + t, positions, network, head, threshold, rest, &counts);
    const slot_demand wanted = demand_of(pass, counts.live);
    const slot_bound bound = bound_of_pass(p, &dense, packed, leaving_keys, &counts, counts.live - dense_live, wanted);

    uint gone = free_within(&dense, bound, 0), first = in_whole_vectors(dense.slots);
    for (uint t = 0; t < TIERS; ++t) {
        gone += free_within(packed + t, bound, first);
        first += in_whole_vectors(packed[t].slots);
    }
#if TIERS > 1
    make_room_in_tiers(p, &dense, packed, leaving_keys, row_of_lane(p, &dense));
#endif
    uint free_slot = 0;
    const uint homeless = move_rows(p, &dense, packed, &free_slot);
    if (free_slots) {
        __global int* list = (__global int*)of_head(free_slots, &p->free_slots, head);
        for (uint i = 0; i < p->free_count; ++i) {
            while (free_slot < packed->slots && packed->tokens[free_slot] >= 0) ++free_slot;
            list[i] = free_slot < packed->slots ? (int)free_slot++ : FREE_SLOT;
        }
    }
    if (sum)
        for (uint i = 0; i < p->v_size; ++i) sum[i] = 0.0f;
    /* Where rows found no room, no slot is free. */
    const long lacking = homeless + (p->wanted_free > 0 ? (long)p->wanted_free - (long)count_free(packed) : 0L);
    __global int* state = (__global int*)of_head(states, &p->state, head);
    state[0] = (int)(counts.live - gone - homeless);
    state[1] += (int)(gone + homeless);
    state[2] = (int)max(max(wanted.required - (long)gone, 0L), lacking);
}

ONE_WORK_ITEM __kernel void slot_evict(PARAMS(slot_evict_params), EVICT_ARGUMENTS) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(slot_evict_params);
    const uint head = (uint)get_group_id(0) + group_base;
    PUT_HEADS
    evict_of_head(&p, dense, packed, floats_of(output_sum, &p.output_sum, head), positions_of,
                  network_of(&p, networks, head), free_slots, states, scratch + head * p.scratch_bytes, head);
}
