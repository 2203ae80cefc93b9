// What the functions of winnow_cache_api take, checked: each failure names the argument, what it was and what was
// expected. Which function it was is said by on_cache and its like (cache.cpp).
#pragma once

#include <string>
#include <vector>

#include "api/handles.hpp"
#include "api/tensor.hpp"

namespace winnow::api {

cache::CacheRequest to_cache_request(const winnow_cache_desc* desc);
// Reads the resources of a description whose shape `request` has.
void add_resources(cache::CacheRequest& request, const winnow_cache_desc& given);
std::vector<cache::CacheStep> to_cache_steps(const winnow_cache& cache, const winnow_cache_step_desc* desc);
// Rows that are read (output) or written (input), and rows that are appended.
cache::CacheRows to_cache_rows(const winnow_cache& cache, const winnow_cache_rows_desc* desc, Access access);
// Reads a description of exact rows.
cache::CacheRows to_exported_rows(const winnow_cache& cache, const winnow_cache_rows_desc* desc);
cache::CacheRows to_imported_rows(const winnow_cache& cache, const winnow_cache_rows_desc* desc);

cache::CacheSaving to_cache_saving(const winnow_cache& cache, const winnow_cache_state_desc* desc);
cache::CacheLoading to_cache_loading(const winnow_cache& cache, const winnow_cache_state_desc* desc);

void expect_layer(const winnow_cache& cache, int64_t layer);
void expect_head(const winnow_cache& cache, int64_t layer, int64_t head);
void expect_sequence(const winnow_cache& cache, const char* name, int64_t sequence);
void expect_sequence_or_all(const winnow_cache& cache, int64_t sequence); // -1: all
void expect_tokens(const cache::CacheRequest& request, const char* name, int64_t tokens);
void expect_range(const winnow_cache& cache, int64_t begin, int64_t end); // end -1: without an end
void expect_delta(int64_t delta);
bool is_token_id(const winnow_cache& cache, int64_t token_id); // a position or a cell
void expect_token_id(const winnow_cache& cache, const char* name, int64_t token_id);

} // namespace winnow::api
