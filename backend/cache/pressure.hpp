// Memory pressure of the machine, 0 to 1.
#pragma once

#include <optional>
#include <string>

namespace winnow::cache {

// The larger of two shares: of the last ten seconds that some task waited for memory (pressure/memory), and of the
// memory that is not available (meminfo). None where the folder has neither.
std::optional<double> memory_pressure(const std::string& proc = "/proc");

} // namespace winnow::cache
