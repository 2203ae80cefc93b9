/* The second of two launches: one group combines the splits of one work. Included by each attention kernel at its
 * end. */
OUT_OF_LINE static void combine(const sdpa_params* p, const sdpa_memory* memory, uint group_number) {
    sdpa_work_tile work;
    sdpa_work_tile_init(&work, p, memory, group_number, 1);
    sdpa_combine_tile(p, memory, &work);
}

ONE_WORK_ITEM __kernel void sdpa_combine(PARAMS(sdpa_params), COMBINE_ARGUMENTS, uint group_base) {
    if (group_base == 0xffffffffu) return; /* a warm-up launch: the launch only makes the driver load the kernel */
    GET_PARAMS(sdpa_params);
    const sdpa_memory memory = {COMBINE_MEMORY};
    combine(&p, &memory, (uint)get_group_id(0) + group_base);
}
