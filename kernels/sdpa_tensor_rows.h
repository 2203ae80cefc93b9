/* Where the rows of an attention's tensors lie. Needs before it: sdpa_memory.h and sdpa_work_tile.h. */

static inline const __global uchar* q_row(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r) {
    return memory->q + p->q.offset + work->batch * p->q.stride[0] + work->head[r] * p->q.stride[1] +
           work->token[r] * p->q.stride[2];
}

static inline __global uchar* out_row(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r) {
    return memory->out + p->out.offset + work->batch * p->out.stride[0] + work->head[r] * p->out.stride[1] +
           work->token[r] * p->out.stride[2];
}

static inline __global uchar* scores_row(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r) {
    return memory->scores + p->scores.offset + work->batch * p->scores.stride[0] + work->head[r] * p->scores.stride[1] +
           work->token[r] * p->scores.stride[2] + work->first_score * sizeof(float);
}

/* Whether logits change, or are stored, even where every key is seen; the same for the whole launch. */
static inline int changes_logits(const sdpa_params* p) {
    return p->mask_type != TYPE_NONE || p->has_alibi || p->softcap != 0.0f;
}
static inline int has_transform(const sdpa_params* p) {
    return changes_logits(p) || p->scores_mode != SDPA_SCORES_NONE;
}

/* Whether scores are wanted of keys that no row sees, too: then no tile is passed over. */
static inline int scores_want_unseen(const sdpa_params* p) {
    return p->scores_mode == SDPA_SCORES_RAW || p->scores_mode == SDPA_SCORES_SOFTCAPPED;
}

static inline const __global uchar* mask_row(const sdpa_params* p, const sdpa_memory* memory, WORK_TILE work, uint r) {
    return memory->mask + p->mask.offset + (work->batch % p->mask_batch) * p->mask.stride[0] +
           (work->head[r] % p->mask_heads) * p->mask.stride[1] + work->token[r] * p->mask.stride[2];
}

/* One element of the mask; a boolean one becomes 0 or -INFINITY. */
static inline float mask_element(const __global uchar* row, uint type, uint key) {
    return type == TYPE_BOOL ? (row[key] ? 0.0f : -INFINITY) : load_any(row, type, key);
}

/* What a KV head has of a segment's tensor: its rows, slot map or mean. */
static inline const __global uchar* slice_of_head(const __global uchar* memory, const tensor_view* view,
                                                  const sdpa_params* p, WORK_TILE work, uint head) {
    return memory + view->offset + (work->batch / p->kv_share) * view->stride[0] + head * view->stride[1];
}
static inline const __global uchar* head_slice(const __global uchar* memory, const tensor_view* view,
                                               const sdpa_params* p, WORK_TILE work) {
    return slice_of_head(memory, view, p, work, work->kv_head);
}

static inline float per_head(const __global uchar* values, winnow_u64 offset, uint head) {
    return load_f32(values + offset, head);
}

/* What a KV head has of the segment at hand. */
typedef struct sdpa_segment_view {
    const __global uchar *k, *v; /* row 0 */
    long k_stride, v_stride;     /* from row to row, in bytes */
    const __global int* slots;   /* the slot map; NULL where key j is row j */
} sdpa_segment_view;
