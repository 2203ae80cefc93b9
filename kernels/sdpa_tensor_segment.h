/* Attention over keys and values by products of small matrices (tensor_cores.h). A subgroup takes 32 keys at a time,
 * with a softmax of its own, so that none waits for another before all keys are seen; what it has of them goes from
 * product to product in registers:
 *
 *     logits    [rows of Q, 8 of their high halves and 8 of their low ones] x [8 keys]
 *     values    [16 elements of V] x [8 rows of weights], once for their high and once for their low halves
 *
 * Halves have too few bits for Q and for weights, so each is a half and a half of what that leaves: 22 bits. Both are
 * scaled by powers of 2 before, so that what is less than 2^-38 of the largest of a row is lost. Factors of
 * packed keys are applied to the products, those of packed values to the weights. Where a value has several factors its
 * codes are so small that bf16 has them whole; then weights are three numbers in bf16, and nothing is lost.
 *
 * What is no number makes everything no number that shares a product with it, seen or not. Then nothing is left, and
 * the segment is taken the other way (sdpa_group_segment.h). Needs before it: what that has before it, its Q and means,
 * subgroup.h of 32 lanes and tensor_formats.h. */
#pragma winnow repeatable

#define SUBGROUPS (GROUP_SIZE / 32)
#define TENSOR_KEYS 32            /* what a step of decoding leaves of weights has tiles of as many keys, too */
#define K_BLOCKS (HEAD_SIZE / 32) /* of which each of a key's 4 lanes takes 8 elements */
#define K_FACTORS (K_PACKED ? K_GROUPS : 1)
#define V_RUN JOIN(FORMAT_RUN_, V_FORMAT)
#define V_RUNS (V_HEAD_SIZE / 8 / V_RUN) /* that each of a value's 8 lanes takes */
#define V_PAIRS (V_HEAD_SIZE / 16)       /* of elements, in all of a lane's runs */
#define V_FACTORS (V_PACKED ? V_GROUPS : 1)

/* Weights in halves are scaled, times the one factor of a value if there is one; bf16 has the range of floats. */
#define WEIGHT_SCALE 16384.0f
#define HAS_UNIT (V_PACKED && V_RUN == 8)
#if HAS_UNIT && V_FACTORS != 1
#error "values of several factors are taken in bf16"
#endif
#undef SUMS_UNIT
#if HAS_UNIT
#define SUMS_UNIT (unit / WEIGHT_SCALE)
#elif V_RUN == 8
#define SUMS_UNIT (1.0f / WEIGHT_SCALE)
#else
#define SUMS_UNIT 1.0f
#endif

#if V_RUN == 8
typedef JOIN(raw8_, V_FORMAT) tensor_v_raw;
#else
typedef uint tensor_v_raw;
#endif

#define IS_NO_NUMBER(x) ((as_uint(x) & 0x7f800000u) == 0x7f800000u)

/* Q of a row, scaled by a power of 2 and halved: the lane's columns of each product. Returns the inverse of the scale.
 */
ALWAYS_INLINE float tensor_queries(const __local float* q, const int is_row, uint t, uint4* halves) {
    float largest = 0.0f;
#pragma unroll
    for (uint j = 0; j < K_BLOCKS * 8; ++j)
        if (is_row) largest = fmax(largest, fabs(q[(j / 8 * 4 + t) * 8 + j % 8]));
    largest = fmax(largest, shuffle_xor(largest, 1));
    largest = fmax(largest, shuffle_xor(largest, 2));
    const uint exponent = clamp(267u - (as_uint(largest) >> 23), 1u, 253u);
    const float scale = as_float(exponent << 23);
#pragma unroll
    for (uint k = 0; k < K_BLOCKS * 2; ++k) {
        const __local float* at = q + (k / 2 * 4 + t) * 8 + k % 2 * 4;
        float2 a = (float2)(0.0f), b = (float2)(0.0f);
        if (is_row) {
            a = (float2)(at[0], at[1]) * scale;
            b = (float2)(at[2], at[3]) * scale;
        }
        halves[k].x = two_as_halves(a);
        halves[k].y = two_as_halves(a - halves_as_two(halves[k].x));
        halves[k].z = two_as_halves(b);
        halves[k].w = two_as_halves(b - halves_as_two(halves[k].z));
    }
    return as_float((254u - exponent) << 23);
}

/* The factor of a key's or value's group, of which lane t has number t. */
#define LANE_FACTOR(row, t, format, size, factors)                                                                     \
    load_half16((row) + JOIN(FORMAT_FACTOR_AT_, format)(size, min(t, (uint)(factors)-1))).s0

/* The inner products of the lane's rows with keys t * 2 and t * 2 + 1 of the 8 whose pieces the
 * subgroup has, as Q is scaled. */
ALWAYS_INLINE float2 tensor_dots(const __local group_state* g, const uint4* q, const JOIN(raw8_, K_FORMAT) * raw,
                                 float factor, uint t) {
    float2 dots = (float2)(0.0f);
    float4 even = (float4)(0.0f), odd = (float4)(0.0f);
#pragma unroll
    for (uint block = 0; block < K_BLOCKS; ++block) {
        uint4 high, low;
        JOIN(halves8_, K_FORMAT)(raw[block], block * 32 + t * 8, g->tensor_tables, &high, &low);
        even = add_product(even, q[2 * block], high.xy);
        odd = add_product(odd, q[2 * block + 1], high.zw);
#if JOIN(FORMAT_LOW_HALVES_, K_FORMAT)
        even = add_product(even, q[2 * block], low.xy);
        odd = add_product(odd, q[2 * block + 1], low.zw);
#endif
        if ((block + 1) % (K_BLOCKS / K_FACTORS) != 0) continue;
        even += odd;
        const float2 of_group = even.xy + even.zw;
#if K_PACKED
        const uint of_factor = t * 8 + block / (K_BLOCKS / K_FACTORS);
        dots.x = fma(of_group.x, shuffle_from(factor, of_factor), dots.x);
        dots.y = fma(of_group.y, shuffle_from(factor, of_factor + 4), dots.y);
#else
        dots += of_group;
#endif
        even = odd = (float4)(0.0f);
    }
    return dots;
}

/* What a row sees of a key, its logit with all that is added, or -INFINITY. */
ALWAYS_INLINE float tensor_shown(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                 const sdpa_segment_view* view, uint r, uint key, float logit) {
#if SLOTS
    const int position = view->slots[key] & ~(1 << 30);
#else
    const int position = (int)key;
#endif
    const int is_in_range = position >= g->work.see_begin[r] && position < g->work.see_end[r];
    const float bias = is_in_range ? group_mask(p, memory, g, r, position) : -INFINITY;
    return group_shown(p, memory, g, r, key, position, bias, logit);
}

/* The lane's runs of the values of 16 keys: of two side by side from `key` on, and of two that are 8 further on. */
ALWAYS_INLINE void tensor_values(const sdpa_segment_view* view, uint key, uint key_end, uint lane,
                                 tensor_v_raw raw[4][V_RUNS]) {
#pragma unroll
    for (uint i = 0; i < 4; ++i) {
        const __global uchar* row = view->v + min(key + i % 2 + i / 2 * 8, key_end - 1) * view->v_stride;
#pragma unroll
        for (uint j = 0; j < V_RUNS; ++j)
#if V_RUN == 8
            raw[i][j] = JOIN(load8_, V_FORMAT)(row, (j * 8 + lane) * 8);
#else
            raw[i][j] = JOIN(load4_, V_FORMAT)(row, (j * 8 + lane) * 4);
#endif
    }
}

/* Pairs of elements of a run as halves, or in bf16. */
ALWAYS_INLINE void tensor_run(const __local group_state* g, tensor_v_raw raw, uint first, uint* high, uint* low) {
#if V_RUN == 8
    uint4 four, four_low;
    JOIN(halves8_, V_FORMAT)(raw, first, g->tensor_tables, &four, &four_low);
    vstore4(four, 0, high);
#if JOIN(FORMAT_LOW_HALVES_, V_FORMAT)
    vstore4(four_low, 0, low);
#endif
#else
    vstore2(JOIN(bf16_4_, V_FORMAT)(raw, first), 0, high);
#endif
}

/* Of a pair of elements of 4 keys: two rows of a matrix, whose columns are keys. */
ALWAYS_INLINE uint4 tensor_columns(uint a, uint b, uint c, uint d) {
    return (uint4)(low_halves(a, b), high_halves(a, b), low_halves(c, d), high_halves(c, d));
}

/* Adds what the values of 16 keys are times their weights: of two keys in a, of two in b. factors: of the lane's two
 * keys and group, where there are several to a value. */
ALWAYS_INLINE void tensor_add_values(const __local group_state* g, tensor_v_raw raw[4][V_RUNS], float2 a, float2 b,
                                     const float* factors, uint t, uint lane, float4* sums) {
#if V_RUN == 8
    uint2 high, low;
#else
    uint parts[2][3];
#endif
#pragma unroll
    for (uint run = 0; run < V_RUNS; ++run) {
        if (run % (V_RUNS / V_FACTORS) == 0) {
#if V_PACKED && V_FACTORS > 1
            const uint of_factor = t * 8 + run / (V_RUNS / V_FACTORS);
            const float2 first = (float2)(shuffle_from(factors[0], of_factor), shuffle_from(factors[0], of_factor + 4));
            const float2 then = (float2)(shuffle_from(factors[1], of_factor), shuffle_from(factors[1], of_factor + 4));
            const float2 c = select(a * first, (float2)(0.0f), a == 0.0f);
            const float2 d = select(b * then, (float2)(0.0f), b == 0.0f);
#else
            const float2 c = a, d = b;
#endif
#if V_RUN == 8
            high = (uint2)(two_as_halves(c), two_as_halves(d));
            low = (uint2)(two_as_halves(c - halves_as_two(high.x)), two_as_halves(d - halves_as_two(high.y)));
#else
            two_as_bf16(c, parts[0]);
            two_as_bf16(d, parts[1]);
#endif
        }
        uint x[4][V_RUN / 2], x_low[4][V_RUN / 2];
#pragma unroll
        for (uint j = 0; j < 4; ++j) tensor_run(g, raw[j][run], (run * 8 + lane) * V_RUN, x[j], x_low[j]);
#pragma unroll
        for (uint i = 0; i < V_RUN / 2; ++i) {
            const uint pair = run * (V_RUN / 2) + i;
            const uint4 columns = tensor_columns(x[0][i], x[1][i], x[2][i], x[3][i]);
#if V_RUN == 8
            sums[pair] = add_product(sums[pair], columns, high);
            sums[pair] = add_product(sums[pair], columns, low);
#else
#pragma unroll
            for (uint part = 0; part < 3; ++part)
                sums[pair] = add_product_bf16(sums[pair], columns, (uint2)(parts[0][part], parts[1][part]));
#endif
#if JOIN(FORMAT_LOW_HALVES_, V_FORMAT)
            sums[pair] =
                add_product(sums[pair], tensor_columns(x_low[0][i], x_low[1][i], x_low[2][i], x_low[3][i]), high);
#endif
        }
    }
}

/* Takes the keys of the group. Returns whether all that came of them are numbers; then of_segment.part_of,
 * segment_maximum and segment_sum are what the group has of them. All work-items of a group call it, and it ends with a
 * barrier. */
ALWAYS_INLINE int tensor_attend(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g,
                                const sdpa_segment_view* view, uint key_begin, uint key_end) {
    const uint subgroup = LANE / 32, row = LANE % 32 / 4, t = LANE % 4;
    const int takes_all = scores_want_unseen(p), is_row = row < ROWS,
              is_plain = sees_all_plainly(p, g, key_begin, key_end - key_begin);
    uint4 q[K_BLOCKS * 2];
    const uint r = is_row ? row : 0;
    const float scale = tensor_queries(g->of_segment.q + r * Q_FLOATS, is_row, t, q) * p->scale;
    const float from_mean = g->from_mean[r];
    float4 sums[V_PAIRS];
#pragma unroll
    for (uint i = 0; i < V_PAIRS; ++i) sums[i] = (float4)(0.0f);
    float maximum = NO_MAXIMUM, sum = 0.0f;
#if HAS_UNIT
    float unit = 0x1p-100f; /* of a row's sums: more than half of its largest weight times factor, and a power of 2 */
#endif
    int is_bad = 0;
    __global float* scores = 0; /* of the lane's row, where they are its logits */
    if (is_plain && p->scores_mode != SDPA_SCORES_NONE && row < g->work.rows)
        scores = (__global float*)scores_row(p, memory, &g->work, row);
    for (uint first = key_begin + subgroup * TENSOR_KEYS; first < key_end; first += SUBGROUPS * TENSOR_KEYS) {
        float s[8];
        {
            JOIN(raw8_, K_FORMAT) keys[4][K_BLOCKS];
            float factors[4];
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                const __global uchar* of_key = view->k + min(first + i * 8 + row, key_end - 1) * view->k_stride;
#pragma unroll
                for (uint j = 0; j < K_BLOCKS; ++j) keys[i][j] = JOIN(load8_, K_FORMAT)(of_key, j * 32 + t * 8);
#if K_PACKED
                factors[i] = LANE_FACTOR(of_key, t, K_FORMAT, HEAD_SIZE, K_FACTORS);
#else
                factors[i] = 1.0f;
#endif
            }
#pragma unroll
            for (uint i = 0; i < 4; ++i) {
                const float2 dots = tensor_dots(g, q, keys[i], factors[i], t);
                s[2 * i] = fma(dots.x, scale, from_mean);
                s[2 * i + 1] = fma(dots.y, scale, from_mean);
            }
        }
        tensor_v_raw values[2][4][V_RUNS];
        tensor_values(view, first + t * 2, key_end, row, values[0]);
        float factors[4];
#if V_PACKED
#pragma unroll
        for (uint i = 0; i < 4; ++i) {
            const __global uchar* of_key = view->v + min(first + i * 8 + row, key_end - 1) * view->v_stride;
            factors[i] = LANE_FACTOR(of_key, t, V_FORMAT, V_HEAD_SIZE, V_FACTORS);
        }
#endif
        int hides = 0;
        float highest = maximum;
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            const uint key = first + i / 2 * 8 + t * 2 + i % 2;
            const int is_key = is_row && key < key_end;
            if (!is_plain && is_key) {
                is_bad |= takes_all && IS_NO_NUMBER(s[i]);
                s[i] = tensor_shown(p, memory, g, view, row, key, s[i]);
            } else if (scores && key < key_end) {
                scores[key] = s[i];
            }
            if (!is_key) s[i] = -INFINITY;
            hides |= s[i] == -INFINITY;
            highest = s[i] > highest ? s[i] : highest;
        }
        highest = fmax(highest, shuffle_xor(highest, 1));
        highest = fmax(highest, shuffle_xor(highest, 2));
        float rescale = highest > maximum ? power_of_2((maximum - highest) * LOG2_E) : 1.0f;
        maximum = highest;
        sum *= rescale;
        float weights[8];
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            weights[i] = s[i] == -INFINITY ? 0.0f : power_of_2((s[i] - maximum) * LOG2_E);
            sum += weights[i];
        }
#if STEP && STATISTIC
        if (p->step.counts_query && is_row) {
            __global float* left = group_weight_tile(p, memory, g, SEGMENT, first);
            if (t == 0) left[row] = maximum;
#pragma unroll
            for (uint i = 0; i < 8; ++i) {
                const uint key = i / 2 * 8 + t * 2 + i % 2;
                if (first + key < key_end)
                    left[16 + row * WEIGHT_KEYS + key] = weight_left(s[i] == -INFINITY, s[i], weights[i]);
            }
        }
#endif
        /* From here on weights are as products take them. A weight of 0 may be that of a factor that is no number. */
#if V_PACKED && V_FACTORS == 1
#pragma unroll
        for (uint i = 0; i < 8; ++i) {
            const float weighted = weights[i] * shuffle_from(factors[i / 2], (t * 2 + i % 2) * 4);
            weights[i] = weights[i] == 0.0f ? 0.0f : weighted;
        }
#endif
#if HAS_UNIT
        float most = 0.0f;
#pragma unroll
        for (uint i = 0; i < 8; ++i) most = fmax(most, fabs(weights[i]));
        most = fmax(most, shuffle_xor(most, 1));
        most = fmax(most, shuffle_xor(most, 2));
        const float next = as_float(as_uint(fmax(most, fmax(unit * rescale, 0x1p-100f))) & 0x7f800000u);
        rescale *= unit / next;
        unit = next;
#pragma unroll
        for (uint i = 0; i < 8; ++i) weights[i] *= WEIGHT_SCALE / unit;
#elif V_RUN == 8
#pragma unroll
        for (uint i = 0; i < 8; ++i) weights[i] *= WEIGHT_SCALE;
#endif
        if (in_any_lane(rescale != 1.0f)) {
            const float left = shuffle_from(rescale, t * 8), right = shuffle_from(rescale, t * 8 + 4);
#pragma unroll
            for (uint i = 0; i < V_PAIRS; ++i) sums[i] *= (float4)(left, right, left, right);
        }
#if !V_PACKED
        /* What no row sees may be anything. */
        const int is_partial = in_any_lane(hides && is_row);
        uint seen = 0xffu; /* of keys as in s */
        if (is_partial) {
            seen = 0;
#pragma unroll
            for (uint i = 0; i < 8; ++i) seen |= (uint)(is_row && s[i] != -INFINITY) << i;
            seen |= as_uint(shuffle_xor(as_float(seen), 4));
            seen |= as_uint(shuffle_xor(as_float(seen), 8));
            seen |= as_uint(shuffle_xor(as_float(seen), 16));
        }
#endif
#pragma unroll
        for (uint step = 0; step < 2; ++step) {
            if (step == 0) tensor_values(view, first + 16 + t * 2, key_end, row, values[1]);
#if !V_PACKED
            if (is_partial) {
#pragma unroll
                for (uint i = 0; i < 4 * V_RUNS; ++i)
                    if (!(seen >> (step * 4 + i / V_RUNS) & 1))
                        values[step][i / V_RUNS][i % V_RUNS] = (tensor_v_raw)(0);
            }
#endif
            tensor_add_values(g, values[step], (float2)(weights[step * 4], weights[step * 4 + 1]),
                              (float2)(weights[step * 4 + 2], weights[step * 4 + 3]), factors + step * 2, t, row, sums);
        }
    }
    const float left_unit = shuffle_from(SUMS_UNIT, t * 8), right_unit = shuffle_from(SUMS_UNIT, t * 8 + 4);
#pragma unroll
    for (uint i = 0; i < V_PAIRS; ++i) sums[i] *= (float4)(left_unit, right_unit, left_unit, right_unit);
    is_bad |= is_row && IS_NO_NUMBER(sum);
#pragma unroll
    for (uint i = 0; i < V_PAIRS; ++i)
        is_bad |=
            IS_NO_NUMBER(sums[i].x) || IS_NO_NUMBER(sums[i].y) || IS_NO_NUMBER(sums[i].z) || IS_NO_NUMBER(sums[i].w);
    sum += shuffle_xor(sum, 1);
    sum += shuffle_xor(sum, 2);
    __local float* maxima = g->by_lane; /* [SUBGROUPS][8] */
    __local float* all_sums = g->by_lane + SUBGROUPS * 8;
    if (LANE == 0) g->is_any = 1;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (is_bad) g->is_any = 0;
    if (t == 0) {
        maxima[subgroup * 8 + row] = maximum;
        all_sums[subgroup * 8 + row] = sum;
    }
    /* What this has stored of scores and weights others store again, if it was for nothing. */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (!g->is_any) return 0;
    for (uint i = LANE; i < ROWS; i += GROUP_SIZE) {
        float highest = NO_MAXIMUM, total = 0.0f;
        for (uint other = 0; other < SUBGROUPS; ++other) highest = fmax(highest, maxima[other * 8 + i]);
        for (uint other = 0; other < SUBGROUPS; ++other)
            total = fma(all_sums[other * 8 + i], exp1(maxima[other * 8 + i] - highest), total);
        g->segment_maximum[i] = highest;
        g->segment_sum[i] = total;
    }
    for (uint i = LANE; i < ROWS * V_FLOATS; i += GROUP_SIZE) g->of_segment.part_of[i] = 0.0f;
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint turn = 0; turn < SUBGROUPS; ++turn) {
        if (turn == subgroup)
#pragma unroll
            for (uint column = 0; column < 2; ++column) {
                const uint of_row = t * 2 + column;
                if (of_row >= ROWS) continue;
                const float factor = exp1(maxima[subgroup * 8 + of_row] - g->segment_maximum[of_row]);
                __local float* to = g->of_segment.part_of + of_row * V_FLOATS + row * V_RUN;
#pragma unroll
                for (uint i = 0; i < V_PAIRS; ++i) {
                    const uint at = i / (V_RUN / 2) * 8 * V_RUN + i % (V_RUN / 2) * 2;
                    to[at] += (column ? sums[i].y : sums[i].x) * factor;
                    to[at + 1] += (column ? sums[i].w : sums[i].z) * factor;
                }
            }
        barrier(CLK_LOCAL_MEM_FENCE);
    }
    return 1;
}
