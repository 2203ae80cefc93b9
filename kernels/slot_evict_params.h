/* The parameters of one slot_evict launch, argument 0. Read by host (C++) and device (OpenCL C); semantics
 * in backend/device/slots.hpp (SlotEvict) and select.hpp. A work-group for each KV head.
 *
 * Scratch memory, scratch_bytes for each head:
 *
 *     | dense keys | packed segments' keys | leaving keys | what V is compared with: dense | packed segments | row |
 *
 * Keys are 8 bytes. Dense and leaving keys are as many as the dense segment has slots, rounded up to 16; the packed
 * segments' keys are counted alike. The row is a key or a value in f32, where there are several packed segments; each
 * work-item of a group has one. Where a group has several, two lists of slots follow at lists_at: those whose rows
 * move, as many as the dense and the largest packed segment have, and free ones of a packed segment. */
#pragma once

#include "slot_segment_params.h"

/* The numbers of Ranking. */
#define RANKING_AGE 0
#define RANKING_IMPORTANCE 1
#define RANKING_IMPORTANCE_VALUE_DISTANCE 2
#define RANKING_RANDOM 3
#define RANKING_PREDICTION 4

/* Of a head's network, each with 4 numbers: backend/device/network.hpp. */
#define HIDDEN_UNITS 8

/* What an eviction pass decides by: winnow::Description with all that is the same for every head worked out. Positions
 * are bounds for `>=` and `<`. */
typedef struct slot_eviction {
    /* RANKING_RANDOM: the seed; RANKING_PREDICTION: where the networks begin, [kv_heads][HIDDEN_UNITS][4] float. */
    winnow_u64 of_ranking;
    winnow_i64 budget;
    winnow_i64 coming; /* tokens until the next eviction pass that the context has room for */
    winnow_i64 trigger_part, trigger_whole;
    winnow_i64 target;
    winnow_i64 most;                    /* 0: any number */
    winnow_i64 share_part, share_whole; /* most_share */
    winnow_u64 quantile_bits;           /* quantile = quantile_bits / 2^quantile_shift, exactly; 53 bits */
    winnow_u32 quantile_shift;
    winnow_u32 ranking; /* RANKING_* */
    winnow_u32 has_threshold;
    winnow_f32 threshold, threshold_rest; /* their sum is the threshold */
    winnow_i32 seen;
    winnow_i32 protected_below, protected_from; /* never evicted: positions below the one and from the other on */
    winnow_i32 eligible_from, eligible_until;
} slot_eviction;

typedef struct slot_evict_params {
    slot_segment dense, packed;
    slot_eviction pass;
    winnow_u64 positions; /* offset of int by token id: its position; the pointer is NULL without */
    head_view output_sum; /* [kv_heads][v_size] float; NULL without */
    head_view free_slots; /* [kv_heads][free_count] int; NULL without */
    head_view state;      /* [kv_heads][4] int: HeadState */
    winnow_u64 scratch_bytes;
    winnow_u32 free_count;
    winnow_u32 residual_first, residual_count;
    winnow_u32 leaving_offset, leaving_count;
    winnow_u8 set_means, moves_by_age, k_norm, v_norm;
    winnow_u32 k_size, v_size; /* elements of a row */
    winnow_f32 outputs;        /* in output_sum */
    winnow_u32 wanted_free;    /* slots of the packed segment */
    slot_segment lower[2];     /* the packed segments below it; their means are its means */
    winnow_u32 wanted_first;   /* slots of the first packed segment, as far as there is room below */
    winnow_u32 lists_at;       /* bytes from where the head's scratch memory begins */
    winnow_u32 first_head;     /* of the layer: the number of this launch's first head in it */
    winnow_u32 reserved;
} slot_evict_params;

#define SLOT_EVICT_PARAMS_SIZE 816
#ifdef __OPENCL_VERSION__
typedef char slot_evict_params_size_differs_from_the_host[sizeof(slot_evict_params) == SLOT_EVICT_PARAMS_SIZE ? 1 : -1];
#else
static_assert(sizeof(slot_evict_params) == SLOT_EVICT_PARAMS_SIZE, "host and device must agree on the struct's size");
#endif
