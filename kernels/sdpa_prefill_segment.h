/* sdpa_prefill.cl's walk over the keys of one segment. Needs before it: sdpa_segment.h, KEYS, the micro-kernels of
 * sdpa_prefill.cl and STORE. */
#pragma winnow repeatable

/* Keys from `key` as columns: kt [HEAD_SIZE, at least 16][KEY_VECTORS]. Keys past `last` repeat it. */
static inline void load_keys_transposed(float16* kt, const __global uchar* k, long stride, uint key, uint last) {
    for (uint i = 0; i < KEY_VECTORS; ++i)
        for (uint chunk = 0; chunk < K_CHUNKS; ++chunk) {
            float16 x[16];
#pragma unroll
            for (uint t = 0; t < 16; ++t) {
                const __global uchar* row = k + (long)min(key + i * 16 + t, last) * stride;
                x[t] = load_key_overlapping(row, chunk);
#if K_ROW_SCALED
                x[t] *= JOIN(row_scale_, K_FORMAT)(row, HEAD_SIZE);
#endif
            }
            transpose16(x);
#pragma unroll
            for (uint d = 0; d < 16; ++d) kt[(CHUNK_START(chunk, HEAD_SIZE) + d) * KEY_VECTORS + i] = x[d];
        }
}

/* What one group does with the keys of this store that it has. */
static inline void attend_segment(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* unit,
                                  const sdpa_result* result) {
    const uint rows = (unit->rows + 3) & ~3u; /* the micro-kernels take four at a time */

    float q[ROWS * HEAD_SIZE];
    float16 kt[(HEAD_SIZE < 16 ? 16 : HEAD_SIZE) * KEY_VECTORS];
    float16 values[KEYS * V_CHUNKS];
    float16 s[ROWS * KEY_VECTORS];
    int seen[ROWS * KEYS];
    float16* accumulator = result->accumulator;
    float* maximum = result->maximum;
    float* sum = result->sum;
    float new_maximum[ROWS], rescale[ROWS];
    for (uint r = 0; r < ROWS; ++r) {
        maximum[r] = new_maximum[r] = NO_MAXIMUM;
        sum[r] = 0.0f;
        result->skipped[r] = 0; /* every value is read: the rows of a block seldom agree on one to pass over */
    }
    for (uint r = 0; r < rows; ++r) {
        const __global uchar* row = q_row(p, memory, unit, r);
#if K_ROTATED
        float16 rotated[K_CHUNKS];
        load_query(row, p->q_type, rotated);
        for (uint c = 0; c < K_CHUNKS; ++c) vstore16(rotated[c], 0, q + r * HEAD_SIZE + c * 16);
#else
        for (uint d = 0; d < HEAD_SIZE; ++d) q[r * HEAD_SIZE + d] = load_any(row, p->q_type, d);
#endif
    }
    for (uint i = 0; i < ROWS * V_CHUNKS; ++i) accumulator[i] = (float16)(0.0f);

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

    for (uint key = unit->key_begin; key < unit->key_end; key += KEYS) {
        const uint count = min((uint)KEYS, unit->key_end - key);

        int16 position[KEY_VECTORS];
        for (uint i = 0; i < KEY_VECTORS; ++i) position[i] = positions16(slots, key + i * 16, part_of_tile(count, i));

        /* Classify: does every row see all of the block, or none any of it? Of a block cut short, `all` means what
         * there is. */
        int all, none;
        sdpa_classify(unit, position, KEY_VECTORS, key, count, &all, &none);
        if (p->mask_type != TYPE_NONE && !none) {
            int16 any_shown = 0;
            for (uint r = 0; r < unit->rows && !any_lane(any_shown); ++r) {
                const __global uchar* row = mask_row(p, memory, unit, r);
                for (uint i = 0; i * 16 < count; ++i)
                    any_shown |= MASK16(p, row, key + i * 16, part_of_tile(count, i), position[i]) != -INFINITY;
            }
            none = !any_lane(any_shown);
        }
        if (none && !scores_of_unseen) {
            if (p->scores_mode != SDPA_SCORES_NONE) sdpa_store_unseen(p, memory, unit, key, count);
            continue;
        }

        /* Logits. */
        load_keys_transposed(kt, k, k_view->stride[2], key, unit->key_end - 1);
        for (uint r = 0; r < rows; r += 4) dot_4_rows(q + r * HEAD_SIZE, kt, p->scale, s + r * KEY_VECTORS);
#if SLOTS
        for (uint r = 0; r < rows; ++r)
            for (uint i = 0; i < KEY_VECTORS; ++i) s[r * KEY_VECTORS + i] += from_mean[r];
#endif
        int hide = !all || count < KEYS;
        uint used = count; /* keys after the last one that a row sees have no weight */
        if (has_transform || hide) {
            int16 hidden = 0, last_seen = 0;
            for (uint r = 0; r < rows; ++r)
                for (uint i = 0; i < KEY_VECTORS; ++i) {
                    const uint part = part_of_tile(count, i);
                    float16 bias = (float16)(0.0f);
                    if (p->mask_type != TYPE_NONE)
                        bias = MASK16(p, mask_row(p, memory, unit, r), key + i * 16, part, position[i]);
                    int16 visible;
                    s[r * KEY_VECTORS + i] = sdpa_transform(p, memory, unit, r, key + i * 16, part, position[i],
                                                            s[r * KEY_VECTORS + i], bias, &visible);
                    vstore16(visible, r * KEY_VECTORS + i, seen);
                    hidden |= ~visible & (LANE_INDEX < (int)part);
                    last_seen = max(last_seen, visible & ((int)(i * 16 + 1) + LANE_INDEX));
                }
            all &= !any_lane(hidden);
            hide |= !all;
            used = largest_lane(last_seen);
        }

        /* Softmax over the block; s becomes the weights. */
        for (uint r = 0; r < rows; ++r) {
            float16 highest = (float16)(NO_MAXIMUM);
            for (uint i = 0; i < KEY_VECTORS; ++i) highest = larger(s[r * KEY_VECTORS + i], highest);
            const float other = maximum_of_lanes(highest);
            new_maximum[r] = other > maximum[r] ? other : maximum[r];
        }
        for (uint r = 0; r < rows; r += 16) {
            vstore16(exp16(vload16(0, maximum + r) - vload16(0, new_maximum + r)), 0, rescale + r);
            vstore16(vload16(0, new_maximum + r), 0, maximum + r);
        }
        for (uint r = 0; r < rows; ++r) {
            float16 weights = (float16)(0.0f);
            for (uint i = 0; i < KEY_VECTORS; ++i) {
                float16 weight = exp16(s[r * KEY_VECTORS + i] - maximum[r]);
                if (hide) weight = select((float16)(0.0f), weight, vload16(r * KEY_VECTORS + i, seen));
                s[r * KEY_VECTORS + i] = weight;
                weights += weight;
            }
            sum[r] = sum[r] * rescale[r] + sum_of_lanes(weights);
        }

        /* Values. */
        int16 special = 0;
        for (uint t = 0; t < used; ++t) {
            const __global uchar* row = v + (long)(key + t) * v_view->stride[2];
            for (uint c = 0; c < V_CHUNKS; ++c) {
                float16 x = load_value(row, c);
#if V_ROW_SCALED
                x *= JOIN(row_scale_, V_FORMAT)(row, V_HEAD_SIZE);
#endif
                values[t * V_CHUNKS + c] = x;
                special |= (as_int16(x) & 0x7f800000) == 0x7f800000;
            }
        }
        const float* weights = (const float*)s;
        if (all || !any_lane(special)) {
            for (uint r = 0; r < rows; r += 4) {
                float16* rows_accumulator = accumulator + r * V_CHUNKS;
                for (uint c = 0; c + 4 <= V_CHUNKS; c += 4)
                    add_values_4_rows(rows_accumulator, rescale + r, weights + r * KEYS, values, used, c, 4);
#if V_CHUNKS % 4
                add_values_4_rows(rows_accumulator, rescale + r, weights + r * KEYS, values, used, V_CHUNKS / 4 * 4,
                                  V_CHUNKS % 4);
#endif
            }
        } else {
            for (uint r = 0; r < rows; ++r)
                add_seen_values_1_row(accumulator + r * V_CHUNKS, rescale[r], weights + r * KEYS, seen + r * KEYS,
                                      values, used);
        }
    }
    leave_segment(p, memory, unit, result);
}
