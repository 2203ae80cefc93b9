/* The parameters of one attention launch, argument 0 of sdpa_vector, sdpa_prefill and sdpa_combine. Read
 * by host (C++) and device (OpenCL C); what the numbers mean is in winnow.h (winnow_sdpa_desc) unless it is said
 * here.
 *
 * How the work is divided: a KV head of one batch entry serves `group` query heads with q_len tokens each, that is
 * group * q_len rows (row = head in the group * q_len + token). They are cut into row_blocks of ROWS rows. The keys
 * in [key_begin, key_end) are cut into `splits` parts of split_keys. One work-group takes one work tile (batch
 * entry, KV head, row block) and one split, whichever segments its keys are in:
 *
 *     group number = tile * splits + split,    tile = (batch entry * kv_heads + KV head) * row_blocks + row block
 *
 * With more than one split a group leaves its partial result in `scratch`, and the last group of the work tile to
 * finish combines:
 *
 *     scratch: uint counter[SDPA_MAX_TILES_SPLIT]    groups of the tile that are done; zero before and after a launch
 *              float partial[tiles][splits][partial_floats]
 *              partial = float accumulator[ROWS][chunks of V * 16], maximum[ROWS], sum[ROWS]; uint skipped[ROWS],
 *                        and up to 3 more: whole runs of 4
 */
#pragma once

#include "slot_segment_params.h"

#define SDPA_MAX_TILES_SPLIT 4096
#define SDPA_COUNTER_BYTES (SDPA_MAX_TILES_SPLIT * 4)

/* winnow.h's WINNOW_SCORES_* */
#define SDPA_SCORES_NONE 0
#define SDPA_SCORES_RAW 1
#define SDPA_SCORES_SOFTCAPPED 2
#define SDPA_SCORES_BIASED 3
#define SDPA_SCORES_PROBS 4

#define SDPA_MOST_SEGMENTS 4
/* How many arguments of sdpa_memory.h an attention has (SDPA_ARGUMENTS), each of its segments with slots has
 * (SEGMENT_ARGUMENTS), and a step has (STEP_ARGUMENTS). A step has one more for each segment: its importance. */
#define SDPA_OWN_ARGUMENTS 11
#define SDPA_SEGMENT_ARGUMENTS 5
#define SDPA_STEP_ARGUMENTS 5
/* How many addresses an entry of sdpa_entries.h has, for so many segments. */
#define SDPA_ADDRESSES(segments)                                                                                       \
    (SDPA_OWN_ARGUMENTS + SDPA_SEGMENT_ARGUMENTS * (segments) + SDPA_STEP_ARGUMENTS + (segments))
#ifdef __OPENCL_VERSION__
#define SDPA_SEGMENTS SEGMENTS
#else
#define SDPA_SEGMENTS SDPA_MOST_SEGMENTS
#endif

/* Keys and values in one format each; usually there is one segment. The fields after v count where it has slots. */
typedef struct sdpa_segment {
    tensor_view k, v;           /* [.., heads, slots, size]: of the heads that it has rows of, one after another */
    tensor_view positions;      /* int: of each slot, negative where it is free */
    tensor_view k_mean, v_mean; /* float: what rows are stored less than */
    head_view importance;       /* of a step: float */
    winnow_u64 heads;           /* bit h: it has rows of KV head h; 0: of all. The rest share its slots */
    winnow_u32 slots;
    winnow_u32 first_key;   /* of its slot 0, among the keys that are cut into splits: a multiple of 64 */
    winnow_u32 first_score; /* of its slot 0, in scores_out */
    winnow_u32 has_k_mean, has_v_mean;
    winnow_u32 reserved;
} sdpa_segment;

/* What a step of decoding does beside attention (sdpa_append.h, sdpa_importance.h); all 0 elsewhere. A work tile has
 * all query heads of a KV head then, and one query token. */
typedef struct sdpa_step {
    tensor_view k, v;           /* of the token that is appended: [1, kv_heads, 1, size] */
    head_view output_sum;       /* float [kv_heads][v_size]; the pointer is NULL without */
    winnow_u64 weights_offset;  /* sdpa_importance.h; a multiple of 64 */
    winnow_u64 token_positions; /* offset of int by token id: its position; the pointer is NULL without */
    winnow_u32 appends_token;
    winnow_u32 slot; /* of segment 0, for the token */
    winnow_i32 token_id, position;
    winnow_u32 k_type, v_type; /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    winnow_u32 counts_query;   /* 0: importance stays as it is */
    winnow_u32 reserved;
    winnow_f32 keep, gain; /* I <- keep I + gain x, where a row sees the slot */
} sdpa_step;

typedef struct sdpa_params {
    tensor_view q, out;
    tensor_view mask;                                     /* a stride is 0 where the mask is broadcast */
    tensor_view scores;                                   /* scores_out */
    tensor_view stats;                                    /* row_stats */
    tensor_view skipped;                                  /* v_rows_skipped */
    tensor_view carried;                                  /* sdpa_carried.h */
    winnow_u64 slopes_offset, alibi_offset, sinks_offset; /* float[q_heads] each */
    winnow_u64 kv_lengths_offset, q_offsets_offset;       /* of LENGTHS: numbers of each batch entry */
    winnow_u32 kv_lengths_type, q_offsets_type;           /* TYPE_NONE, TYPE_I32 or TYPE_I64 */
    winnow_i64 q_offset;
    winnow_i64 window_left, window_right; /* 0: no limit */
    winnow_u32 batch, kv_heads, group, q_len;
    winnow_u32 kv_len;                 /* of all segments */
    winnow_u32 kv_share;               /* batch entries of q that share one of k and v */
    winnow_u32 mask_batch, mask_heads; /* sizes of the mask's axes: the index is modulo */
    winnow_u32 key_begin, key_end;     /* keys outside are seen by no row, and no scores are wanted of them */
    winnow_u32 row_blocks, splits, split_keys, partial_floats;
    winnow_f32 scale, softcap;
    winnow_f32 v_threshold;        /* 0: every value is read */
    winnow_u32 q_type, out_type;   /* TYPE_F32, TYPE_F16 or TYPE_BF16 */
    winnow_u32 mask_type;          /* TYPE_NONE, TYPE_F32, TYPE_F16 or TYPE_BOOL */
    winnow_u32 mask_key_broadcast; /* 1: the mask has one element for all keys */
    winnow_u32 mask_columns;
    winnow_u32 has_slopes, has_alibi, has_sinks, has_stats, has_skipped;
    winnow_u32 is_causal;
    winnow_u32 scores_mode;
    winnow_u32 joins_carried, leaves_carried;
    winnow_u32 combine_groups; /* of a work tile, in the second launch of the shape "workgroup" */
    winnow_u32 first_counter;  /* in scratch, of work tile 0; and the float at which its partial results begin */
    winnow_u64 first_partial;
    sdpa_step step;
    sdpa_segment segment[SDPA_SEGMENTS]; /* a launch hands over as many as it has */
} sdpa_params;

#define SDPA_PARAMS_SIZE (576 + SDPA_SEGMENTS * 208)
#ifdef __OPENCL_VERSION__
typedef char sdpa_params_size_differs_from_the_host[sizeof(sdpa_params) == SDPA_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(sdpa_params) == SDPA_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
