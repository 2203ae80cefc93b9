/* Where a page's signature lies, and the hot slots of a frame. Needs before it: page_index_params.h, K_SIZE, CODES
 * where signatures are codes. */
#define BLOCK_PAGES 16
#ifdef CODES
#define SIGNATURE_BYTES (K_SIZE / 16)
#else
#define SIGNATURE_BYTES (K_SIZE / 8)
#endif

static inline __global uchar* signature_block(__global uchar* signatures, const page_index* index, uint head,
                                              uint block) {
    return signatures + index->signatures.offset + (long)head * index->signatures.stride +
           (long)block * index->block_stride;
}

static inline void free_frame(const page_index* index, __global int* frames, __global int* hot_tokens, uint frame) {
    frames[frame] = -1;
    for (uint i = 0; i < index->page_slots; ++i) hot_tokens[frame * index->page_slots + i] = FREE_SLOT;
}
