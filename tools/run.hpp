// `winnow run`: starts a program of llama.cpp's with the plugin, and says at its end whether Winnow was called.
#pragma once

#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

namespace winnow::tools {

struct RunOptions {
    std::optional<std::string> kv;    // WINNOW_KV; "": caches in place. Otherwise what is set, else `winnow`
    std::string device;               // WINNOW_DEVICE, "": as it is set
    std::string report;               // WINNOW_REPORT, "": as it is set
    std::vector<std::string> command; // the program and its arguments
};

// The exit status where no program was started.
constexpr int not_started = 125;

// Returns the program's exit status, or 128 and the signal that ended it; not_started where it was not started, and
// `err` says why; 126 and 127 as shells do, where it cannot be started or is not there.
int run_program(const RunOptions& options, std::ostream& err);

} // namespace winnow::tools
