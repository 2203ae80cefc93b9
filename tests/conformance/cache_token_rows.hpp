// What a host hands to cache_read, cache_write and cache_import_rows, and gets back from them.
#pragma once

#include <cstdint>
#include <random>
#include <vector>

#include "cache_attention.hpp"
#include "cache_host.hpp"

namespace winnow::conformance {

struct TokenRows {
    int64_t layer = 0, sequence = 0;
    TestTensor tokens, k, v;
};

std::vector<int64_t> token_ids_to(int64_t end); // 0, 1, ... end - 1

// Rows for these tokens in a type and layout of keys and values, full of what nobody stores.
TokenRows make_token_rows(const CacheSetup& setup, int64_t layer, int64_t sequence,
                          const std::vector<int64_t>& token_ids, uint32_t type, Layout layout = Layout::packed);
// Random ones; of every fourth head and token the key and the value begin with NaN where `has_holes`.
void fill_token_rows(TokenRows& rows, std::mt19937_64& engine, bool has_holes);

// How far the rows of a token are from stored ones: the sum of the largest differences of key and value.
double distance_of(const TokenRows& rows, size_t head, size_t at, const StoredRow& stored);

using TokenRowsFunction = int32_t(WINNOW_CALL*)(winnow_cache*, const winnow_cache_rows_desc*);
// Runs, and brings the rows back. The status, WINNOW_OK or not.
int32_t run(CacheHost& host, TokenRowsFunction function, TokenRows& rows);

} // namespace winnow::conformance
