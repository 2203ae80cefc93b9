// Variables of the environment that are numbers: what the plugin takes, and what `winnow doctor` checks.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "environment.hpp"

namespace winnow::ggml {

// The memory pressure that caches are told: WINNOW_PRESSURE, a share from 0 to 1, or "auto", which is -1 here: each
// eviction pass asks the system. 0 where it is not set. Throws std::runtime_error where it is something else.
inline double kv_pressure() {
    if (variable("WINNOW_PRESSURE") == "auto") return -1;
    return number_of("WINNOW_PRESSURE", 0.0, 1.0, "auto, or a share from 0 to 1").value_or(0);
}

// The position in a sequence from which on tokens are taken one at a time, whatever batches they come in:
// WINNOW_DECODE_FROM. Nothing where it is not set. Throws std::runtime_error where it is something else.
inline std::optional<int64_t> decode_from() {
    return number_of<int64_t>("WINNOW_DECODE_FROM", 0, std::numeric_limits<int64_t>::max(), "a position, 0 or more");
}

// The seconds after which a report is written again: WINNOW_REPORT_EVERY. 0 where it is not set. Throws
// std::runtime_error where it is something else.
inline double report_interval() {
    constexpr double least = std::numeric_limits<double>::min(), most = 1e6;
    return number_of("WINNOW_REPORT_EVERY", least, most, "seconds, up to 1000000").value_or(0);
}

// Whether the plugin refuses versions of ggml that its libraries were not compiled for: WINNOW_GGML_STRICT. Throws
// std::runtime_error where it is neither 0 nor 1.
inline bool is_strict() { return number_of<int>("WINNOW_GGML_STRICT", 0, 1, "0 or 1").value_or(0) == 1; }

} // namespace winnow::ggml
