// Importances that a host gives.
#pragma once

#include <span>

#include "cache/cache_state.hpp"

namespace winnow::cache {

// One value for each token id. A token that the KV head does not hold is passed over; of one that is named twice the
// later value holds.
void set_importance(CacheState& cache, int64_t sequence, int64_t layer, int64_t head,
                    std::span<const int64_t> token_ids, std::span<const float> importance);

} // namespace winnow::cache
