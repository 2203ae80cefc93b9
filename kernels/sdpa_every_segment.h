/* The code of each segment, one after the other: SEGMENT_CODE names the repeatable file that has an attention kernel's.
 * Needs before it: SEGMENT_CODE, sdpa_segment_names.h and what that file needs. */
#define SEGMENT 0
#include SEGMENT_CODE
#if SEGMENTS > 1
#undef SEGMENT
#define SEGMENT 1
#include SEGMENT_CODE
#endif
#if SEGMENTS > 2
#undef SEGMENT
#define SEGMENT 2
#include SEGMENT_CODE
#endif
#if SEGMENTS > 3
#undef SEGMENT
#define SEGMENT 3
#include SEGMENT_CODE
#endif
