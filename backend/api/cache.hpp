// The functions of the table that are about caches: winnow.h says what each does.
#pragma once

#include "winnow.h"

namespace winnow::api {

int32_t cache_create(winnow_context* context, const winnow_cache_desc* desc, winnow_cache** cache);
int32_t cache_destroy(winnow_cache* cache);
int32_t cache_estimate(winnow_context* context, const winnow_cache_desc* desc, int64_t tokens,
                       winnow_cache_stats* stats, char* message, size_t message_size);
int32_t cache_step(winnow_cache* cache, const winnow_cache_step_desc* desc, winnow_event** event);
int32_t cache_reserve(winnow_cache* cache, int64_t sequence, int64_t tokens);
int32_t cache_truncate(winnow_cache* cache, int64_t sequence, int64_t length);
int32_t cache_remove(winnow_cache* cache, int64_t sequence, int64_t begin, int64_t end);
int32_t cache_copy(winnow_cache* cache, int64_t from, int64_t to);
int32_t cache_shift(winnow_cache* cache, int64_t sequence, int64_t begin, int64_t end, int64_t delta);
int32_t cache_reset(winnow_cache* cache);
int32_t cache_save(winnow_cache* cache, const char* path);
int32_t cache_load(winnow_cache* cache, const char* path);
int32_t cache_stats(winnow_cache* cache, winnow_cache_stats* stats);
int32_t cache_sequence_stats(winnow_cache* cache, int64_t sequence, winnow_cache_stats* stats);
int32_t cache_positions(winnow_cache* cache, int64_t sequence, int64_t layer, int64_t head, int32_t* positions,
                        uint64_t capacity, uint64_t* count);
int32_t cache_segments(winnow_cache* cache, int64_t sequence, int64_t layer, int64_t head, int32_t* segments,
                       uint64_t capacity, uint64_t* count);
int32_t cache_importance(winnow_cache* cache, int64_t sequence, int64_t layer, int64_t head, float* importance,
                         uint64_t capacity, uint64_t* count);
int32_t cache_set_importance(winnow_cache* cache, int64_t sequence, int64_t layer, int64_t head,
                             const int32_t* positions, const float* importance, uint64_t count);
int32_t cache_set_experts(winnow_cache* cache, int64_t sequence, int64_t layer, const int32_t* positions,
                          const int32_t* experts, uint64_t count, uint64_t experts_per_token);
int32_t cache_expert_counts(winnow_cache* cache, int64_t layer, uint64_t* counts, uint64_t capacity, uint64_t* count);
int32_t cache_set_config(winnow_cache* cache, const char* config);
int32_t cache_get_config(winnow_cache* cache, char* config, size_t* size);
int32_t cache_set_pressure(winnow_cache* cache, double pressure);
int32_t cache_anchor(winnow_cache* cache, int64_t sequence, const int64_t* positions, uint64_t count);
int32_t cache_read(winnow_cache* cache, const winnow_cache_rows_desc* desc);
int32_t cache_write(winnow_cache* cache, const winnow_cache_rows_desc* desc);
int32_t cache_restore(winnow_cache* cache, const winnow_cache_rows_desc* desc);
int32_t cache_export_rows(winnow_cache* cache, const winnow_cache_rows_desc* desc);
int32_t cache_import_rows(winnow_cache* cache, const winnow_cache_rows_desc* desc);
int32_t cache_describe(winnow_context* context, const winnow_cache_desc* desc, winnow_cache_info* info, char* message,
                       size_t message_size);

} // namespace winnow::api
