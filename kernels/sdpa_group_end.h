/* What a group of many work-items has when it has seen its keys, and how the rows of a work tile come of it. In the
 * group's state: accumulator, maximum, sum and skipped. Needs before it: sdpa_group_importance.h, sdpa_carried.h,
 * sdpa_finish_row.h and SINGLE_LAUNCH. */

/* Joins a row's segment_maximum and segment_sum with what it has: what is added up is to be multiplied by rescale, and
 * what comes with them by from_mean. */
ALWAYS_INLINE void group_join_row(__local group_state* g, uint r) {
    const float maximum = max(g->maximum[r], g->segment_maximum[r]);
    g->rescale[r] = exp1(g->maximum[r] - maximum);
    g->from_mean[r] = exp1(g->segment_maximum[r] - maximum);
    g->maximum[r] = maximum;
    g->sum[r] = fma(g->segment_sum[r], g->from_mean[r], g->sum[r] * g->rescale[r]);
}

/* Adds what earlier launches have; rows past the last one repeat it. */
ALWAYS_INLINE void group_join_carried(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    for (uint r = LANE; r < ROWS; r += GROUP_SIZE) {
        const __global float* row = carried_row(p, memory, &g->work, min(r, g->work.rows - 1));
        g->segment_maximum[r] = row[V_FLOATS];
        g->segment_sum[r] = row[V_FLOATS + 1];
        group_join_row(g, r);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (uint i = LANE; i < ROWS * V_FLOATS; i += GROUP_SIZE) {
        const uint r = i / V_FLOATS;
        const float carried = carried_row(p, memory, &g->work, min(r, g->work.rows - 1))[i % V_FLOATS];
        g->accumulator[i] = fma(carried, g->from_mean[r], g->accumulator[i] * g->rescale[r]);
    }
    barrier(CLK_LOCAL_MEM_FENCE);
}

ALWAYS_INLINE void group_leave_carried(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    for (uint i = LANE; i < g->work.rows * V_FLOATS; i += GROUP_SIZE)
        carried_row(p, memory, &g->work, i / V_FLOATS)[i % V_FLOATS] = g->accumulator[i];
    for (uint r = LANE; r < g->work.rows; r += GROUP_SIZE) {
        __global float* row = carried_row(p, memory, &g->work, r);
        row[V_FLOATS] = g->maximum[r];
        row[V_FLOATS + 1] = g->sum[r];
    }
}

/* Makes the rows of a work tile. Where `parts` groups do, each has some of the keys, and the first one the rows. */
ALWAYS_INLINE void group_end_rows(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint part,
                                  uint parts) {
    if (p->joins_carried) group_join_carried(p, memory, g);
    if (p->leaves_carried) {
        group_leave_carried(p, memory, g);
        return;
    }
    const uint rows = g->work.rows;
    for (uint r = LANE; r < rows; r += GROUP_SIZE) {
        const sdpa_row_end end =
            sdpa_finish_row(p, memory, &g->work, r, g->maximum[r], g->sum[r], g->skipped[r], part == 0);
        g->from_mean[r] = end.factor;
        g->segment_maximum[r] = end.maximum;
        g->segment_sum[r] = end.inverse;
    }
    /* Scores and weights that other lanes of this group have stored are read again. */
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (part == 0)
        for (uint i = LANE; i < rows * V_HEAD_SIZE; i += GROUP_SIZE) {
            const uint r = i / V_HEAD_SIZE, e = i % V_HEAD_SIZE;
            store_any(out_row(p, memory, &g->work, r), p->out_type, e,
                      g->accumulator[r * V_FLOATS + e] * g->from_mean[r]);
        }
    if (p->scores_mode == SDPA_SCORES_PROBS)
        for (uint r = 0; r < rows; ++r) {
            __global float* row = (__global float*)scores_row(p, memory, &g->work, r);
            for (uint key = part * GROUP_SIZE + LANE; key < p->kv_len; key += parts * GROUP_SIZE) {
                const float s = row[key];
                row[key] = s == -INFINITY ? 0.0f : exp1(s - g->segment_maximum[r]) * g->segment_sum[r];
            }
        }
    group_importance(p, memory, g, g->maximum, g->from_mean, part, parts);
}

/* ---- Splits ---- */

/* Makes the rows of a work tile of what its splits have left, in one group, or in parts. */
ALWAYS_INLINE void group_combine(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g, uint part,
                                 uint parts) {
    float highest = NO_MAXIMUM;
    if (LANE_ROW < ROWS)
        for (uint split = LANE_OF_ROW; split < p->splits; split += ROW_LANES) {
            const float other = sdpa_partial(p, memory, g->work.index, split)[ROWS * V_FLOATS + LANE_ROW];
            highest = other > highest ? other : highest;
        }
    const float maximum = maximum_of_row(g, highest);
    float lanes_sum = 0.0f;
    uint lanes_skipped = 0;
    if (LANE_ROW < ROWS)
        for (uint split = LANE_OF_ROW; split < p->splits; split += ROW_LANES) {
            const __global float* of_rows = sdpa_partial(p, memory, g->work.index, split) + ROWS * V_FLOATS + LANE_ROW;
            lanes_sum = fma(of_rows[ROWS], exp1(of_rows[0] - maximum), lanes_sum);
            lanes_skipped += as_uint(of_rows[2 * ROWS]);
        }
    const float sum = sum_of_row(g, lanes_sum);
    const uint skipped = count_of_row(g, lanes_skipped);
    if (LANE_ROW < ROWS && LANE_OF_ROW == 0) {
        g->maximum[LANE_ROW] = maximum;
        g->sum[LANE_ROW] = sum;
        g->skipped[LANE_ROW] = skipped;
    }
    __local float* factors = g->parts[0]; /* [ROWS][most] */
    const uint most = PARTS_FLOATS / ROWS;
    for (uint i = LANE; i < ROWS * V_FLOATS; i += GROUP_SIZE) g->accumulator[i] = 0.0f;
    for (uint first = 0; part == 0 && first < p->splits; first += most) {
        const uint count = min(p->splits - first, most);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = LANE; i < ROWS * count; i += GROUP_SIZE) {
            const uint r = i / count, split = i % count;
            const __global float* partial = sdpa_partial(p, memory, g->work.index, first + split);
            factors[r * most + split] = exp1(partial[ROWS * V_FLOATS + r] - g->maximum[r]);
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (uint i = LANE * 4; i < ROWS * V_FLOATS; i += GROUP_SIZE * 4) {
            const __local float* of_row = factors + i / V_FLOATS * most;
            const __global float* partial = sdpa_partial(p, memory, g->work.index, first) + i;
            __local float4* accumulator = (__local float4*)(g->accumulator + i);
            float4 total = *accumulator;
#pragma unroll 8
            for (uint split = 0; split < count; ++split)
                total = fma(*(const __global float4*)(partial + (ulong)split * p->partial_floats),
                            (float4)(of_row[split]), total);
            *accumulator = total;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    group_end_rows(p, memory, g, part, parts);
}

/* Where a group leaves its result. With SINGLE_LAUNCH the last group of a work tile to get here combines; otherwise
 * sdpa_combine, launched after, does. */
ALWAYS_INLINE void group_leave_result(const sdpa_params* p, const sdpa_memory* memory, __local group_state* g) {
    if (p->splits == 1) {
        group_end_rows(p, memory, g, 0, 1);
        return;
    }
    __global float* partial = sdpa_partial(p, memory, g->work.index, g->work.split);
    for (uint i = LANE; i < ROWS * V_FLOATS; i += GROUP_SIZE) partial[i] = g->accumulator[i];
    for (uint r = LANE; r < ROWS; r += GROUP_SIZE) {
        __global float* of_row = partial + ROWS * V_FLOATS + r;
        of_row[0] = g->maximum[r];
        of_row[ROWS] = g->sum[r];
        of_row[2 * ROWS] = as_float(g->skipped[r]);
    }
#if SINGLE_LAUNCH
    volatile __global atomic_uint* counter = (volatile __global atomic_uint*)memory->scratch + g->work.index;
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (LANE == 0) {
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_device);
        const uint done = atomic_fetch_add_explicit(counter, 1u, memory_order_acq_rel, memory_scope_device) + 1;
        g->is_last = done == p->splits;
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
    }
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (!g->is_last) return;
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
    group_combine(p, memory, g, 0, 1);
    if (LANE == 0) atomic_store_explicit(counter, 0u, memory_order_relaxed, memory_scope_device);
#endif
}
