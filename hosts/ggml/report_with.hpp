// What WINNOW_REPORT_WITH asks for, beside the figures that the report always has.
#pragma once

#include <cstdint>
#include <string>

#include "plugin.hpp"

namespace winnow::ggml {

// Whether the list in WINNOW_REPORT_WITH has this word: "resident" or "profile".
bool reports(const char* word);

struct CacheShape {
    int64_t streams, layers, kv_heads;
};

// The cells that a cache holds, ascending: an array of streams of layers of heads. Throws std::runtime_error.
std::string resident_cells(Context& context, winnow_cache* cache, const CacheShape& shape);

} // namespace winnow::ggml
