/* The second of two launches: one group combines the splits of one work. Included by each attention kernel at its
 * end. */
OUT_OF_LINE static void combine(const sdpa_params* p, const sdpa_memory* memory, uint group_number) {
    sdpa_work_tile work;
    sdpa_work_tile_init(&work, p, group_number, 1);
    sdpa_combine_tile(p, memory, &work);
}

ONE_WORK_ITEM __kernel void sdpa_combine(const sdpa_params p, const __global uchar* sinks_memory,
                                         __global uchar* out_memory, __global uchar* scores_memory,
                                         __global uchar* stats_memory, __global uchar* skipped_memory,
                                         __global uchar* carried_memory, __global uchar* scratch_memory,
#if STEP
                                         __global uchar* output_sum_memory, __global uchar* step_weights_memory,
                                         EVERY_SEGMENT(IMPORTANCE_ARGUMENT),
#endif
                                         uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    const sdpa_memory memory = {
        .sinks = sinks_memory,
        .out = out_memory,
        .scores = scores_memory,
        .stats = stats_memory,
        .skipped = skipped_memory,
        .carried = carried_memory,
        .scratch = scratch_memory,
#if STEP
        .output_sum = output_sum_memory,
        .step_weights = step_weights_memory,
        .importance = {EVERY_SEGMENT(IMPORTANCE_MEMORY)}
#endif
    };
    combine(&p, &memory, (uint)get_group_id(0) + group_base);
}
