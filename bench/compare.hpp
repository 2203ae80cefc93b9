// What has changed from one report of winnow-bench to another, beyond what differs from run to run anyway.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace winnow::bench {

// A table of the times that changed, the rows that one of the reports has alone, and how much the limits of the machine
// itself (reading, copying, arithmetic, an empty launch) changed, under what differs of driver and Winnow. Reports are
// those of --json; of each figure the shortest of all repeats counts, and the repeats' spread is its noise. Throws
// std::runtime_error where they are of different devices, or are no reports.
std::string changes(const nlohmann::json& before, const nlohmann::json& after);

} // namespace winnow::bench
