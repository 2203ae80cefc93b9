/* What a KV head has of a segment, and its rows as bytes. Needs before it: slot_segment_params.h. */
#include "vector_parts.h"

static inline __global uchar* of_head(__global uchar* memory, const head_view* view, uint head) {
    return memory + view->offset + (long)head * view->stride;
}

static inline void copy_bytes(__global uchar* to, const __global uchar* from, ulong count) {
    ulong i = 0;
    for (; i + 16 <= count; i += 16) vstore16(vload16(0, from + i), 0, to + i);
    for (; i < count; ++i) to[i] = from[i];
}
