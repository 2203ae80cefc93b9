// Another policy or budget for a cache that holds tokens.
#pragma once

#include <string>

#include "cache/cache_state.hpp"

namespace winnow::cache {

void set_config(CacheState& cache, const std::string& text);

} // namespace winnow::cache
