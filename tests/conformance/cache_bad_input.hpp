// What tests of misuse share: a fault, and the cache that has to be as it was after it.
#pragma once

#include <cstdint>
#include <functional>

#include "bad_input.hpp"

namespace winnow::conformance {

inline constexpr int64_t misused_layers = 2, misused_kv_heads = 2, misused_context = 96;

// The description of the caches that are misused: 4 query heads on 2 KV heads, 2 sequences; in cell mode with 48 cells.
winnow_cache_desc misused_cache(bool by_cells);

struct CacheFault {
    Wrong wrong;
    bool by_cells;
    std::function<int32_t(winnow_cache*)> call;
};

// Commits the fault on a cache with tokens, and compares that with a twin.
void expect_refused(const CacheFault& fault);
void register_cache_bad_configs();

} // namespace winnow::conformance
