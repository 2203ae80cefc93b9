// Importances that a host gives.
#pragma once

#include <span>

#include "cache/cache_state.hpp"

namespace winnow::cache {

struct HeadRange {
    int64_t begin, end;
};

// One value for each token id, in each of the KV heads. A token that a head does not hold is passed over; of one that
// is named twice the later value holds.
void set_importance(CacheState& cache, int64_t sequence, int64_t layer, HeadRange heads,
                    std::span<const int32_t> token_ids, std::span<const float> importance);

} // namespace winnow::cache
