/* Combining the splits of a work tile: each leaves its partial result in scratch (sdpa_params.h), and the last one to
 * get there, or a launch of its own, makes the rows of them. Needs before it: sdpa_result.h and SINGLE_LAUNCH. */

/* The result of one split, for sdpa_combine_tile. */
static inline void sdpa_store_partial(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                      const sdpa_result* result) {
    __global float* partial = sdpa_partial(p, memory, work->index, work->split);
    for (uint i = 0; i < ROWS * V_CHUNKS; ++i) vstore16(result->accumulator[i], i, partial);
    partial += ROWS * V_CHUNKS * 16;
    for (uint r = 0; r < ROWS; ++r) {
        partial[r] = result->maximum[r];
        partial[ROWS + r] = result->sum[r];
        partial[2 * ROWS + r] = as_float(result->skipped[r]);
    }
}

static inline void sdpa_combine_tile(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work) {
    sdpa_rows_end end;
    sdpa_begin_end(&end);
    for (uint r = 0; r < work->rows; ++r) {
        float maximum = NO_MAXIMUM;
        for (uint split = 0; split < p->splits; ++split) {
            const float other = sdpa_partial(p, memory, work->index, split)[ROWS * V_CHUNKS * 16 + r];
            maximum = other > maximum ? other : maximum;
        }
        float sum = 0.0f;
        uint skipped = 0;
        float16 accumulator[V_CHUNKS];
        for (uint chunk = 0; chunk < V_CHUNKS; ++chunk) accumulator[chunk] = (float16)(0.0f);
        for (uint split = 0; split < p->splits; ++split) {
            const __global float* partial = sdpa_partial(p, memory, work->index, split);
            const float factor = exp1(partial[ROWS * V_CHUNKS * 16 + r] - maximum);
            sum = fma(partial[ROWS * V_CHUNKS * 16 + ROWS + r], factor, sum);
            skipped += as_uint(partial[ROWS * V_CHUNKS * 16 + 2 * ROWS + r]);
            for (uint chunk = 0; chunk < V_CHUNKS; ++chunk)
                accumulator[chunk] = fma(vload16(r * V_CHUNKS + chunk, partial), (float16)(factor), accumulator[chunk]);
        }
        sdpa_end_row(p, memory, work, r, maximum, sum, skipped, accumulator, &end);
    }
    sdpa_importance(p, memory, work, &end);
}

/* Where a group leaves its result. With SINGLE_LAUNCH the last group of a work tile to get here combines; otherwise
 * sdpa_combine, launched after, does. */
static inline void sdpa_leave_result(const sdpa_params* p, const sdpa_memory* memory, const sdpa_work_tile* work,
                                     const sdpa_result* result) {
    if (p->splits == 1) {
        sdpa_store_result(p, memory, work, result);
        return;
    }
    sdpa_store_partial(p, memory, work, result);
#if SINGLE_LAUNCH
    volatile __global atomic_uint* counter =
        (volatile __global atomic_uint*)memory->scratch + p->first_counter + work->index;
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_device);
    const uint done = atomic_fetch_add_explicit(counter, 1u, memory_order_acq_rel, memory_scope_device) + 1;
    if (done == p->splits) {
        atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
        sdpa_combine_tile(p, memory, work);
        atomic_store_explicit(counter, 0u, memory_order_relaxed, memory_scope_device);
    }
#endif
}
