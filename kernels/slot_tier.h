/* The rows of packed segment TIER, one of several: read_k_row and read_v_row make f32 of one of its rows, store_k_row
 * and store_v_row make one of its rows (slot_store_row.h), rotate_point and packed_distance compare its values
 * (slot_packed_values.h), each with TIER behind its name. The first segment has the last four by their plain names.
 * Needs before it: what those headers need, slot_store_row.h, slot_values.h, and K_FORMAT_2, V_FORMAT_2, ... */
#pragma winnow repeatable

#if TIER > 1
#undef K_FORMAT
#undef V_FORMAT
#define K_FORMAT JOIN(K_FORMAT_, TIER)
#define V_FORMAT JOIN(V_FORMAT_, TIER)
#define store_k_row JOIN(store_k_row_, TIER)
#define store_v_row JOIN(store_v_row_, TIER)
#include "kv_store_row.h"
#undef store_k_row
#undef store_v_row
#define rotate_point JOIN(rotate_point_, TIER)
#define packed_distance JOIN(packed_distance_, TIER)
#include "slot_packed_values.h"
#undef rotate_point
#undef packed_distance
#endif

#define MAY_BE_IN_PLACE 0
#define DST_FORMAT f32
#define SRC_FORMAT K_FORMAT
#define SIZE K_SIZE
#define move_row JOIN(read_k_row_, TIER)
#include "kv_move_row.h"
#undef SRC_FORMAT
#undef SIZE
#undef move_row
#define SRC_FORMAT V_FORMAT
#define SIZE V_SIZE
#define move_row JOIN(read_v_row_, TIER)
#include "kv_move_row.h"
#undef SRC_FORMAT
#undef SIZE
#undef move_row
#undef MAY_BE_IN_PLACE
#undef DST_FORMAT
