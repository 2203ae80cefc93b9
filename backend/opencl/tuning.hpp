// Numbers that decide how fast a device is and no result depends on: how work is divided. Which are good is measured
// (`winnow tune`) and kept by device and driver in a file of the user's.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "device/device.hpp"

namespace winnow::opencl {

struct Tuning {
    // What a work-group of one work-item costs beyond its keys (start, load of Q, partial result and its combination),
    // in multiply-adds.
    uint64_t group_overhead = 30'000;
    // From so many multiply-adds on the host's threads share a launch: some 15 microseconds of one core.
    uint64_t divided_work = 300'000;
    // Groups of many work-items that attention of few rows gives each compute unit; 0: as many as the variant says.
    uint32_t groups = 0;

    bool operator==(const Tuning&) const = default;
};

// What is said of it elsewhere; none: nothing.
struct TuningChanges {
    std::optional<uint64_t> group_overhead, divided_work;
    std::optional<uint32_t> groups;

    void apply(Tuning& tuning) const;
    bool operator==(const TuningChanges&) const = default;
};

// The largest that each may be.
inline constexpr uint64_t most_group_overhead = 1'000'000'000, most_divided_work = 1'000'000'000'000;
inline constexpr uint32_t most_groups_of_unit = 1024;

// What the environment names: WINNOW_TUNING, "off" for none; else winnow/tuning.json in $XDG_CONFIG_HOME or ~/.config,
// if it is there.
std::optional<std::filesystem::path> tuning_file();

// What a file says of a device with its driver; no changes where it says nothing of it. Throws INVALID_ARGUMENT with
// the file, what is wrong and what was expected.
TuningChanges tuning_in(const std::filesystem::path& file, const winnow_device_info& device);

// All of it, what is forced last; the log is told of what a file changes.
Tuning tuning_of(const winnow_device_info& device, const TuningChanges& forced, const Log& log);

} // namespace winnow::opencl
