/* Where a KV head's rows of one segment lie. Needs before it: sdpa_segment_names.h, sdpa_tensor_rows.h and SEGMENT. */
#pragma winnow repeatable

static inline sdpa_segment_view find_segment(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work) {
    const sdpa_segment* segment = &p->segment[SEGMENT];
    const sdpa_segment_memory* of_segment = &memory->segment[SEGMENT];
    sdpa_segment_view view;
#if SLOTS
    const uint head = sdpa_rows_of_head(segment, work->kv_head);
#else
    const uint head = work->kv_head;
#endif
    view.k = slice_of_head(of_segment->k, &segment->k, p, work, head);
    view.v = slice_of_head(of_segment->v, &segment->v, p, work, head);
    view.k_stride = segment->k.stride[2];
    view.v_stride = segment->v.stride[2];
#if SLOTS
    view.slots = (const __global int*)head_slice(of_segment->positions, &segment->positions, p, work);
#else
    view.slots = 0;
#endif
    return view;
}
