// How the last `winnow run` ended, kept for `winnow doctor` in a small file beside the kernels' cache.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "run_outcome.hpp"

namespace winnow::tools {

// Where Winnow keeps compiled kernels: winnow in XDG_CACHE_HOME, else in ~/.cache; empty where neither is known.
std::filesystem::path cache_folder();

struct LastRun {
    std::string time, program; // UTC, the program's name
    Outcome outcome;
};
// Where it cannot be kept, nothing happens.
void keep_last_run(const Run& run, const Outcome& outcome);
std::optional<LastRun> read_last_run();

} // namespace winnow::tools
