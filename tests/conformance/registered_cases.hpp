// The tests that come from case tables and from the seed: each file of them registers its own, for main.cpp.
#pragma once

namespace winnow::conformance {

void register_abi_checks();
void register_sdpa_vector_cases();
void register_sdpa_prefill_cases();
void register_kv_append_cases();
void register_format_attention();
void register_format_appends();
void register_format_rows();
void register_format_bad_input();
void register_cache_schedules();
void register_cache_steps();
void register_cache_cells();
void register_cache_together();
void register_cache_unlike_layers();
void register_cache_recall();
void register_cache_cold_file();
void register_cache_files();
void register_cache_contract();
void register_cache_no_wait();
void register_cache_rows();
void register_cache_exact_rows();
void register_cache_stats();
void register_cache_describe();
void register_cache_bad_input();

} // namespace winnow::conformance
