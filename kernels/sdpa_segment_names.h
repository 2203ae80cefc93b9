/* A program of attention has code for each of its segments, because each has formats of its own: sdpa_every_segment.h
 * includes it once for every SEGMENT. Here is what its types and functions are called there. Needs before it:
 * format_any.h and a K_FORMAT_<segment> and V_FORMAT_<segment> each. */

/* The formats of the segment that is being compiled. */
#define K_FORMAT JOIN(K_FORMAT_, SEGMENT)
#define V_FORMAT JOIN(V_FORMAT_, SEGMENT)

#define OF_SEGMENT(name) JOIN(name##_, SEGMENT)

/* sdpa_segment_view.h and sdpa_segment_rows.h */
#define load_key_overlapping OF_SEGMENT(load_key_overlapping)
#define load_key OF_SEGMENT(load_key)
#define load_whole_key OF_SEGMENT(load_whole_key)
#define load_query OF_SEGMENT(load_query)
#define load_value OF_SEGMENT(load_value)
#define load_whole_value OF_SEGMENT(load_whole_value)
#define find_segment OF_SEGMENT(find_segment)
#define mean_scores OF_SEGMENT(mean_scores)
#define add_mean_scores OF_SEGMENT(add_mean_scores)
#define finish_segment OF_SEGMENT(finish_segment)

/* sdpa_factors.h */
#define key_factors OF_SEGMENT(key_factors)
#define value_weights OF_SEGMENT(value_weights)
#define stage_halves OF_SEGMENT(stage_halves)
#define stage_key_factors OF_SEGMENT(stage_key_factors)
#define factors_are_finite OF_SEGMENT(factors_are_finite)
#define load_scaled_codes OF_SEGMENT(load_scaled_codes)
#define finish_dot OF_SEGMENT(finish_dot)
#define weigh_codes OF_SEGMENT(weigh_codes)
#define load_value_codes OF_SEGMENT(load_value_codes)

/* sdpa_vector_segment.h and sdpa_prefill_segment.h */
#define segment_queries OF_SEGMENT(segment_queries)
#define load_queries OF_SEGMENT(load_queries)
#define sum_query_groups OF_SEGMENT(sum_query_groups)
#define dot_four OF_SEGMENT(dot_four)
#define dot16 OF_SEGMENT(dot16)
#define queries_can_round OF_SEGMENT(queries_can_round)
#define dot_elements OF_SEGMENT(dot_elements)
#define load_keys_transposed OF_SEGMENT(load_keys_transposed)
#define sdpa_logits OF_SEGMENT(sdpa_logits)
#define add_values OF_SEGMENT(add_values)
#define add_seen_values OF_SEGMENT(add_seen_values)
#define add_run OF_SEGMENT(add_run)
#define values_are_finite OF_SEGMENT(values_are_finite)
#define choose_values OF_SEGMENT(choose_values)
#define prefetch_values OF_SEGMENT(prefetch_values)
#define load_values OF_SEGMENT(load_values)
#define sdpa_values OF_SEGMENT(sdpa_values)

/* sdpa_byte_keys.h */
#define byte_query OF_SEGMENT(byte_query)
#define round_query OF_SEGMENT(round_query)
#define dot_bytes_of_four OF_SEGMENT(dot_bytes_of_four)

/* sdpa_group_segment.h */
#define group_queries OF_SEGMENT(group_queries)
#define group_mean_scores OF_SEGMENT(group_mean_scores)
#define group_key OF_SEGMENT(group_key)
#define group_value OF_SEGMENT(group_value)
#define group_k_piece OF_SEGMENT(group_k_piece)
#define group_v_piece OF_SEGMENT(group_v_piece)
#define group_fetch_keys OF_SEGMENT(group_fetch_keys)
#define group_fetch_values OF_SEGMENT(group_fetch_values)
#define group_key_of_batch OF_SEGMENT(group_key_of_batch)
#define group_keep_keys OF_SEGMENT(group_keep_keys)
#define group_dots OF_SEGMENT(group_dots)
#define group_dot OF_SEGMENT(group_dot)
#define group_logits OF_SEGMENT(group_logits)
#define group_add_values OF_SEGMENT(group_add_values)
#define group_values OF_SEGMENT(group_values)
#define group_finish OF_SEGMENT(group_finish)
#define group_restore OF_SEGMENT(group_restore)
#define group_piece_dot OF_SEGMENT(group_piece_dot)
#define group_halve OF_SEGMENT(group_halve)
#define group_lane_queries OF_SEGMENT(group_lane_queries)
#define tensor_queries OF_SEGMENT(tensor_queries)
#define tensor_v_raw OF_SEGMENT(tensor_v_raw)
#define tensor_dots OF_SEGMENT(tensor_dots)
#define tensor_run OF_SEGMENT(tensor_run)
#define tensor_columns OF_SEGMENT(tensor_columns)
#define tensor_add_values OF_SEGMENT(tensor_add_values)
#define tensor_values OF_SEGMENT(tensor_values)
#define tensor_shown OF_SEGMENT(tensor_shown)
#define tensor_attend OF_SEGMENT(tensor_attend)

/* sdpa_prefill_group_segment.h */
#define prefill_queries OF_SEGMENT(prefill_queries)
#define prefill_k_chunk OF_SEGMENT(prefill_k_chunk)
#define prefill_v_chunk OF_SEGMENT(prefill_v_chunk)
#define prefill_key OF_SEGMENT(prefill_key)
#define prefill_value OF_SEGMENT(prefill_value)
#define prefill_logits OF_SEGMENT(prefill_logits)
#define prefill_add OF_SEGMENT(prefill_add)
#define prefill_values OF_SEGMENT(prefill_values)
#define prefill_all_values OF_SEGMENT(prefill_all_values)
#define prefill_add_mean OF_SEGMENT(prefill_add_mean)

/* sdpa_attend_segment.h, sdpa_group_segment.h and sdpa_prefill_group_segment.h */
#define attend_segment OF_SEGMENT(attend_segment)
