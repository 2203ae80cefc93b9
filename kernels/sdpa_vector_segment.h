/* sdpa_vector.cl's walk over the keys of one segment. Needs before it: sdpa_segment.h, sdpa_factors.h, the sizes of
 * sdpa_vector.cl and STORE. */
#pragma winnow repeatable

/* A chunk of a key: of a packed one the codes, times their factors, which are given as [K_GROUPS][TILE], unless they
 * all have the same. */
static inline float16 load_key_of_16(const __global uchar* row, uint chunk, const float* factors, uint key) {
#if !K_PACKED
    return load_key(row, chunk);
#elif K_GROUP == HEAD_SIZE
    return JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE);
#else
    return JOIN(codes16_, K_FORMAT)(row, chunk * 16, HEAD_SIZE) * factors[chunk * 16 / K_GROUP * TILE + key];
#endif
}

/* A chunk of a value; of a packed one the codes. */
static inline float16 load_value_codes(const __global uchar* row, uint chunk) {
#if V_PACKED
    return JOIN(codes16_, V_FORMAT)(row, chunk * 16, V_HEAD_SIZE);
#else
    return load_value(row, chunk);
#endif
}

/* Inner products of all rows with 16 keys, asking for what comes later on the way. `last` is the last key that may
 * be read: later ones repeat it. Of packed keys: factors and biases are
 * [K_GROUPS][TILE], and q_sums, [ROWS][K_GROUPS], are those of the elements of q. */
static inline void dot16(const float16* q, const float* q_sums, const __global uchar* k, const float16* factors,
                         const float16* biases, long stride, uint key, uint last, long near, long far, float scale,
                         float16* s, uint s_step) {
    float16 sums[ROWS * 4];
    for (uint four = 0; four < 4; ++four) {
        const __global uchar* k0 = k + (long)min(key + four * 4 + 0, last) * stride;
        const __global uchar* k1 = k + (long)min(key + four * 4 + 1, last) * stride;
        const __global uchar* k2 = k + (long)min(key + four * 4 + 2, last) * stride;
        const __global uchar* k3 = k + (long)min(key + four * 4 + 3, last) * stride;
        for (uint first = 0; first < ROWS; first += ROWS_AT_ONCE) {
            float16 sum[ROWS_AT_ONCE][4];
#pragma unroll
            for (uint r = 0; r < ROWS_AT_ONCE; ++r) sum[r][0] = sum[r][1] = sum[r][2] = sum[r][3] = (float16)(0.0f);
#pragma unroll CHUNKS_AT_ONCE
            for (uint chunk = 0; chunk < K_CHUNKS; ++chunk) {
                if (first == 0) {
                    PREFETCH_CHUNK(k0, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                    PREFETCH_CHUNK(k1, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                    PREFETCH_CHUNK(k2, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                    PREFETCH_CHUNK(k3, chunk, K_ROW_BYTES, K_CHUNKS, near, far);
                }
                const float16 x0 = load_key_of_16(k0, chunk, (const float*)factors, four * 4 + 0);
                const float16 x1 = load_key_of_16(k1, chunk, (const float*)factors, four * 4 + 1);
                const float16 x2 = load_key_of_16(k2, chunk, (const float*)factors, four * 4 + 2);
                const float16 x3 = load_key_of_16(k3, chunk, (const float*)factors, four * 4 + 3);
#pragma unroll
                for (uint r = 0; r < ROWS_AT_ONCE; ++r) {
                    const float16 y = q[(first + r) * K_CHUNKS + chunk];
                    sum[r][0] = fma(x0, y, sum[r][0]);
                    sum[r][1] = fma(x1, y, sum[r][1]);
                    sum[r][2] = fma(x2, y, sum[r][2]);
                    sum[r][3] = fma(x3, y, sum[r][3]);
                }
            }
#pragma unroll
            for (uint r = 0; r < ROWS_AT_ONCE; ++r)
                sums[(first + r) * 4 + four] = sum_lanes_of_4(sum[r][0], sum[r][1], sum[r][2], sum[r][3]);
        }
    }
    for (uint r = 0; r < ROWS; ++r) {
        float16 dot = sum_blocks_of_4(sums[r * 4], sums[r * 4 + 1], sums[r * 4 + 2], sums[r * 4 + 3]);
#if K_PACKED && K_GROUP == HEAD_SIZE
        dot *= factors[0];
#endif
        s[r * s_step] = dot;
    }
#if K_BIASED
    for (uint g = 0; g < K_GROUPS; ++g) {
        const float16 bias = biases[g * TILE_VECTORS];
        for (uint r = 0; r < ROWS; ++r) s[r * s_step] = fma(bias, (float16)(q_sums[r * K_GROUPS + g]), s[r * s_step]);
    }
#endif
    for (uint r = 0; r < ROWS; ++r) s[r * s_step] *= scale;
}

/* Adds weight x value of `count` keys to `size` chunks of the accumulator, after scaling it. weights:
 * [V_GROUPS][ROWS][TILE], with the factors of packed values in them; biases: [V_GROUPS][ROWS], what all elements of a
 * group get. */
static inline void add_values(float16* accumulator, const float* rescale, const float* weights, const float* biases,
                              const __global uchar* v, long stride, uint count, long near, long far, uint chunk,
                              const uint size) {
    float16 sum[ROWS][SLICE];
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            sum[r][c] = accumulator[r * V_CHUNKS + chunk + c] * rescale[r];
#if V_BIASED
            sum[r][c] += biases[GROUP_OF_CHUNK(chunk + c) * ROWS + r];
#endif
        }
    for (uint t = 0; t < count; ++t) {
        const __global uchar* row = v + (long)t * stride;
#pragma unroll
        for (uint c = 0; c < size; ++c) {
            PREFETCH_CHUNK(row + chunk * (V_ROW_BYTES / V_CHUNKS), c, V_ROW_BYTES, V_CHUNKS, near, far);
            const float16 x = load_value_codes(row, chunk + c);
#pragma unroll
            for (uint r = 0; r < ROWS; ++r)
                sum[r][c] = fma((float16)(weights[(GROUP_OF_CHUNK(chunk + c) * ROWS + r) * TILE + t]), x, sum[r][c]);
        }
    }
#pragma unroll
    for (uint r = 0; r < ROWS; ++r)
#pragma unroll
        for (uint c = 0; c < size; ++c) accumulator[r * V_CHUNKS + chunk + c] = sum[r][c];
}

#if !V_PACKED
/* The same where some rows see keys that others do not, and values are not all finite: what a row does not see must not
 * reach it, not even as 0 x NaN. seen: [ROWS][TILE], all bits or none. */
static inline void add_seen_values(float16* accumulator, const float* rescale, const float* weights, const int* seen,
                                   const __global uchar* v, long stride, uint count) {
    for (uint r = 0; r < ROWS; ++r)
        for (uint c = 0; c < V_CHUNKS; ++c) accumulator[r * V_CHUNKS + c] *= rescale[r];
    for (uint t = 0; t < count; ++t)
        for (uint c = 0; c < V_CHUNKS; ++c) {
            const int16 x = as_int16(load_value(v + (long)t * stride, c));
            for (uint r = 0; r < ROWS; ++r)
                accumulator[r * V_CHUNKS + c] = fma((float16)(weights[r * TILE + t]),
                                                    as_float16(x & seen[r * TILE + t]), accumulator[r * V_CHUNKS + c]);
        }
}

/* Whether `count` rows of values hold neither infinity nor NaN. */
static inline int values_are_finite(const __global uchar* v, long stride, uint count) {
    int16 special = 0;
    for (uint t = 0; t < count; ++t)
        for (uint c = 0; c < V_CHUNKS; ++c)
            special |= (as_int16(load_value(v + (long)t * stride, c)) & 0x7f800000) == 0x7f800000;
    return !any_lane(special);
}
#endif

/* Asks for the rows of values that are read, which lie apart, before the first one is needed. */
static inline void prefetch_read(uint read, const __global uchar* v, long stride) {
    for (; read; read &= read - 1)
        for (uint c = 0; c < V_CHUNKS; ++c)
            PREFETCH_CHUNK(v + (long)trailing_zeros(read) * stride, c, V_ROW_BYTES, V_CHUNKS, 0, 0);
}

/* What one group does with the keys of this store that it has. */
static inline void attend_segment(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                  const sdpa_result* result) {
    float16 q[ROWS * K_CHUNKS];
#if K_BIASED
    float q_sums[ROWS * K_GROUPS];
#else
    const float* q_sums = 0;
#endif
    float16* accumulator = result->accumulator;
    float* maximum = result->maximum;
    uint* skipped = result->skipped;
    float16 sum[ROWS]; /* lane by lane: added up at the end */
    float rescale[16];
    for (uint r = 0; r < ROWS; ++r) {
        const __global uchar* row = q_row(p, memory, unit, r);
        load_query(row, p->q_type, q + r * K_CHUNKS);
#if K_BIASED
        for (uint g = 0; g < K_GROUPS; ++g) {
            float16 of_group = (float16)(0.0f);
            for (uint c = g * K_GROUP / 16; c < (g + 1) * K_GROUP / 16; ++c) of_group += q[r * K_CHUNKS + c];
            q_sums[r * K_GROUPS + g] = sum_of_lanes(of_group);
        }
#endif
        for (uint c = 0; c < V_CHUNKS; ++c) accumulator[r * V_CHUNKS + c] = (float16)(0.0f);
        sum[r] = (float16)(0.0f);
        skipped[r] = 0;
    }
    for (uint r = 0; r < 16; ++r) maximum[r] = NO_MAXIMUM;

    const tensor_view* k_view = &p->segment[STORE].k;
    const tensor_view* v_view = &p->segment[STORE].v;
    const __global uchar* k = plane(memory->segment[STORE].k, k_view, p, unit);
    const __global uchar* v = plane(memory->segment[STORE].v, v_view, p, unit);
    const __global int* slots = SLOT_MAP(p, memory, unit);
#if SLOTS
    float from_mean[ROWS];
    mean_scores(p, memory, unit, from_mean);
#endif
    const int has_transform = sdpa_has_transform(p);
    const int scores_of_unseen = p->scores_mode == SDPA_SCORES_RAW || p->scores_mode == SDPA_SCORES_SOFTCAPPED;

    float16 s[ROWS * TILE_VECTORS];
    float16 bias[ROWS * TILE_VECTORS];
    int seen[ROWS * TILE];
    for (uint i = 0; i < ROWS * TILE_VECTORS; ++i) s[i] = (float16)(0.0f); /* a part of a tile leaves the rest */
    const int sparse = p->v_threshold != 0.0f;
    int read_few = 0; /* values of the last tile */
    for (uint key = unit->key_begin; key < unit->key_end; key += TILE) {
        const uint count = min((uint)TILE, unit->key_end - key);

        int16 position[TILE_VECTORS];
        for (uint i = 0; i < TILE_VECTORS; ++i) position[i] = positions16(slots, key + i * 16, part_of_tile(count, i));

        /* Classify: does every row see all of the tile, or none any of it? Of a tile cut short, `all` means what
         * there is. */
        int all, none;
        sdpa_classify(unit, position, TILE_VECTORS, key, count, &all, &none);
        if (p->mask_type != TYPE_NONE && (!none || scores_of_unseen)) {
            int16 any_hidden = 0, any_shown = 0;
            const __global uchar* last_row = 0;
            for (uint r = 0; r < ROWS; ++r) {
                const __global uchar* row = mask_row(p, memory, unit, r);
                if (row == last_row) { /* heads may share theirs */
                    for (uint i = 0; i < TILE_VECTORS; ++i)
                        bias[r * TILE_VECTORS + i] = bias[(r - 1) * TILE_VECTORS + i];
                    continue;
                }
                last_row = row;
                for (uint i = 0; i < TILE_VECTORS; ++i) {
                    const uint part = part_of_tile(count, i);
                    const float16 x = MASK16(p, row, key + i * 16, part, position[i]);
                    const int16 hidden = (x == -INFINITY) & (LANE_INDEX < (int)part);
                    bias[r * TILE_VECTORS + i] = x;
                    any_hidden |= hidden;
                    any_shown |= x != -INFINITY;
                }
            }
            all &= !any_lane(any_hidden);
            none |= !any_lane(any_shown);
        }
        if (none && !scores_of_unseen) {
            if (p->scores_mode != SDPA_SCORES_NONE) sdpa_store_unseen(p, memory, unit, key, count);
            sdpa_leave_seen(p, memory, unit, STORE, key, maximum, 0, 0, seen);
            continue;
        }

        /* Logits. */
        const long near = key + TILE + NEAR <= unit->key_end ? NEAR : 0;
        const long far = key + TILE + FAR <= unit->key_end ? FAR : near;
#if K_PACKED
        const __global uchar* keys = k + (long)key * k_view->stride[2];
        float16 factors[K_GROUPS * TILE_VECTORS];
        STAGE(factors, K_FORMAT, FORMAT_FACTOR_AT_, HEAD_SIZE, K_GROUPS, keys, k_view->stride[2], BITS_OF_TILE(count));
#else
        const float16* factors = 0;
#endif
#if K_BIASED
        float16 key_biases[K_GROUPS * TILE_VECTORS];
        STAGE(key_biases, K_FORMAT, FORMAT_BIAS_AT_, HEAD_SIZE, K_GROUPS, keys, k_view->stride[2], BITS_OF_TILE(count));
        const int is_finite_tile = are_finite(factors, key_biases);
#else
        const float16* key_biases = 0;
        const int is_finite_tile = 1;
#endif
        for (uint i = 0; is_finite_tile && i * 16 < count; ++i)
            dot16(q, q_sums, k, factors + i, key_biases + i, k_view->stride[2], key + i * 16, unit->key_end - 1,
                  near * k_view->stride[2], far * k_view->stride[2], p->scale, s + i, TILE_VECTORS);
#if K_BIASED
        if (!is_finite_tile) dot_elements(q, keys, k_view->stride[2], count, p->scale, (float*)s);
#endif
#if SLOTS
        for (uint r = 0; r < ROWS; ++r)
            for (uint i = 0; i < TILE_VECTORS; ++i) s[r * TILE_VECTORS + i] += from_mean[r];
#endif
        int hide = !all || count < TILE;
        uint by_any = BITS_OF_TILE(count), by_all = by_any; /* keys that any, that all rows see, a bit each */
        if (has_transform || hide) {
            by_any = by_all = 0;
            for (uint i = 0; i < TILE_VECTORS; ++i) {
                const uint part = part_of_tile(count, i);
                int16 shown = 0, shown_to_all = -1;
                for (uint r = 0; r < ROWS; ++r) {
                    int16 visible;
                    s[r * TILE_VECTORS + i] =
                        sdpa_transform(p, memory, unit, r, key + i * 16, part, position[i], s[r * TILE_VECTORS + i],
                                       bias[r * TILE_VECTORS + i], &visible);
                    vstore16(visible, r * TILE_VECTORS + i, seen);
                    shown |= visible;
                    shown_to_all &= visible;
                }
                by_any |= bits_of_lanes(shown) << i * 16;
                by_all |= bits_of_lanes(shown_to_all) << i * 16;
            }
            hide |= by_all != BITS_OF_TILE(count);
        }
        const uint used = 32 - clz(by_any); /* keys after the last one that a row sees have no weight */

        sdpa_leave(p, memory, unit, STORE, key, s, 1);

        /* Softmax over the tile; s becomes the weights. */
        float new_maximum[16];
        vstore16(vload16(0, maximum), 0, new_maximum);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            float16 highest = s[r * TILE_VECTORS];
            for (uint i = 1; i < TILE_VECTORS; ++i) highest = larger(s[r * TILE_VECTORS + i], highest);
            const float other = maximum_of_lanes(larger(highest, (float16)(NO_MAXIMUM)));
            new_maximum[r] = other > maximum[r] ? other : maximum[r];
        }
        vstore16(exp16(vload16(0, maximum) - vload16(0, new_maximum)), 0, rescale);
        vstore16(vload16(0, new_maximum), 0, maximum);
#pragma unroll
        for (uint r = 0; r < ROWS; ++r) {
            sum[r] *= rescale[r];
            for (uint i = 0; i < TILE_VECTORS; ++i) {
                float16 weight = exp16(s[r * TILE_VECTORS + i] - maximum[r]);
                if (hide) weight = select((float16)(0.0f), weight, vload16(r * TILE_VECTORS + i, seen));
                s[r * TILE_VECTORS + i] = weight;
                sum[r] += weight;
            }
        }
        sdpa_leave(p, memory, unit, STORE, key, s, 0);
        sdpa_leave_seen(p, memory, unit, STORE, key, maximum, by_any, by_all, seen);

        /* Under a threshold: a weight below the threshold's share of the sum so far is below that of the whole. */
        uint read = BITS_OF_TILE(used);
        const long v_stride = v_view->stride[2];
        const __global uchar* rows = v + (long)key * v_stride;
        if (sparse) {
            float limits[ROWS];
            for (uint r = 0; r < ROWS; ++r) limits[r] = p->v_threshold * BELOW_ROUNDING * sum_of_lanes(sum[r]);
            read = find_read(read, s, limits, seen, hide, skipped);
            if (read_few) prefetch_read(read, rows, v_stride);
            read_few = popcount(read) * 2 <= TILE;
        }
#if !V_PACKED
        /* What no row sees need not be read, where that leaves what all of them see. */
        const int alike = by_any == by_all;
        if (alike) read &= by_any;
#endif

        /* Values, in runs of keys that are read. */
        const long v_near = read_few ? 0 : near * v_stride;
        const long v_far = read_few ? 0 : far * v_stride;
#if V_PACKED
        float16 weights_of_codes[V_GROUPS * ROWS * TILE_VECTORS];
        const float* of_codes = (const float*)weights_of_codes;
        float biases[V_GROUPS * ROWS];
        weigh_codes(weights_of_codes, biases, s, seen, hide, read, rows, v_stride);
#else
        const float* of_codes = (const float*)s;
        const float* biases = 0;
#endif
        do {
            const uint begin = read ? trailing_zeros(read) : 0;
            const uint after = ~(read >> begin);
            const uint length = after ? trailing_zeros(after) : TILE;
            const __global uchar* run = rows + (long)begin * v_stride;
#if V_PACKED
            const int is_finite = 1; /* codes are */
#else
            const int is_finite = alike || values_are_finite(run, v_stride, length);
            if (!is_finite)
                add_seen_values(accumulator, rescale, of_codes + begin, seen + begin, run, v_stride, length);
#endif
#if V_CHUNKS <= 16
#pragma unroll
#endif
            for (uint slice = 0; is_finite && slice < V_CHUNKS / SLICE; ++slice)
                add_values(accumulator, rescale, of_codes + begin, biases, run, v_stride, length, v_near, v_far,
                           slice * SLICE, SLICE);
#if V_CHUNKS % SLICE
            if (is_finite)
                add_values(accumulator, rescale, of_codes + begin, biases, run, v_stride, length, v_near, v_far,
                           V_CHUNKS / SLICE * SLICE, V_CHUNKS % SLICE);
#endif
            vstore16((float16)(1.0f), 0, rescale); /* what was done for the first run is done */
#if V_BIASED
            for (uint i = 0; i < V_GROUPS * ROWS; ++i) biases[i] = 0.0f;
#endif
            read &= read + (1u << begin); /* clears the run */
        } while (read);
    }

    for (uint r = 0; r < ROWS; ++r) result->sum[r] = sum_of_lanes(sum[r]);
    leave_segment(p, memory, unit, result);
}
