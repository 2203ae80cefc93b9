// Memory pressure of the machine or of a container, 0 to 1.
#pragma once

#include <optional>
#include <string>

namespace winnow::cache {

// The largest of these shares: of the last ten seconds that some task waited for memory (pressure/memory), of the
// machine's memory that is not available (meminfo), and, of each control group with a limit that this process is in,
// both of that limit. None where the folders tell nothing.
std::optional<double> memory_pressure(const std::string& proc = "/proc", const std::string& cgroups = "/sys/fs/cgroup");

} // namespace winnow::cache
