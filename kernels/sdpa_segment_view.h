/* Where a KV head's rows of one segment lie. Needs before it: sdpa_segment_names.h, sdpa_tensor_rows.h and SEGMENT. */
#pragma winnow repeatable

static inline sdpa_segment_view find_segment(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work) {
    const sdpa_segment* segment = &p->segment[SEGMENT];
    const sdpa_segment_memory* of_segment = &memory->segment[SEGMENT];
    sdpa_segment_view view;
    view.k = head_slice(of_segment->k, &segment->k, p, work);
    view.v = head_slice(of_segment->v, &segment->v, p, work);
    view.k_stride = segment->k.stride[2];
    view.v_stride = segment->v.stride[2];
#if SLOTS
    view.slots = (const __global int*)head_slice(of_segment->positions, &segment->positions, p, work);
#else
    view.slots = 0;
#endif
    return view;
}
