/* What the attention kernels share that is the same for every segment, in the order in which it is needed: memory, the
 * work of a group, and the stages of attention but the two that are a kernel's own. Needs before it: sdpa_params.h, the
 * -D of an attention kernel, TILE, and
 *
 *     ROWS_TAKEN(work)     rows of a work tile that are computed: work->rows, or some of those past it, too
 *     ROWS_UNROLLED        how many of them a loop takes at once */
#include "opencl_1_2.h"
#include "formats.h"
#include "format_any.h"
#include "float16_math.h"
#include "rotation.h"
#include "vector_parts.h"
#include "vector_lanes.h"
#include "prefetch.h"
#include "sdpa_segment_names.h"
#include "sdpa_formats.h"
#include "sdpa_chunks.h"
#include "sdpa_tile.h"
#include "sdpa_memory.h"
#include "sdpa_work_tile.h"
#include "sdpa_tensor_rows.h"
#include "sdpa_mask.h"
#include "sdpa_scores.h"
#include "sdpa_classify.h"
#include "sdpa_transform.h"
#include "sdpa_softmax.h"
#if STEP || APPEND
#include "kv_rows.h"
#endif
#if STEP
#include "slot_statistic.h"
#include "slot_outputs.h"
#endif
#include "sdpa_append.h"
#include "sdpa_importance.h"
#include "sdpa_carried.h"
#include "sdpa_finish_row.h"
#include "sdpa_result.h"
#include "sdpa_splits.h"
