/* Where a token of slot_append goes, and under which token id. Needs before it: slot_append_params.h, slot_parts.h. */

/* The slot of a token, or -1: it is not stored. */
static inline long slot_of(const slot_append_params* p, __global uchar* slots, uint head, uint token) {
    long slot = p->first + (p->offset + token) % p->count;
    if (slots) slot = ((const __global int*)of_head(slots, &p->slots, head))[token];
    return slot < p->segment.slots ? slot : -1;
}

static inline int token_id_of(const slot_append_params* p, const __global uchar* token_ids, uint token) {
    return token_ids ? ((const __global int*)(token_ids + p->token_ids))[token] : p->token_id + (int)token;
}

static inline const __global float* mean_of(__global uchar* mean, const head_view* view, uint head) {
    return mean ? (const __global float*)of_head(mean, view, head) : 0;
}
