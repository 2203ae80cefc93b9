// What WINNOW_REPORT_WITH asks for, beside the figures that the report always has.
#pragma once

#include "cache_handle.hpp"
#include "kv_figures.hpp"

namespace winnow::ggml {

// Whether the list in WINNOW_REPORT_WITH has this word: "resident", "profile" or "samples", which are a
// part of the profile.
bool reports(const char* word);

// The cells whose tokens a cache holds. Throws std::runtime_error.
ResidentCells resident_cells(const CacheHandle& cache);

} // namespace winnow::ggml
