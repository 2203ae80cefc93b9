// What `winnow run` is told of this process: lines in the file that WINNOW_RUN_LOG names, each with the number of the
// process, an event and a text, separated by tabs. The file has to exist, so that none is made after that program
// ended.
//
//   loaded    the plugin is registered; the device of caches in place
//   used      llama.cpp made a backend of it, as it does for a context
//   computed  the first attention of such a backend
//   report    the report as it is now, JSON
//   warning, error   what the plugin logs
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "environment.hpp"

namespace winnow::ggml {

inline bool has_run_log() { return !variable("WINNOW_RUN_LOG").empty(); }

inline void note_run(std::string_view event, std::string_view text) {
    if (!has_run_log()) return;
    std::string line = std::to_string(getpid());
    line.append("\t").append(event).append("\t").append(text).append("\n");
    std::replace(line.begin(), line.end() - 1, '\n', ' ');
    const int file = open(std::string(variable("WINNOW_RUN_LOG")).c_str(), O_WRONLY | O_APPEND | O_CLOEXEC);
    if (file < 0) return;
    // In one call, so that lines of several processes stay whole. Whoever started the program sees a line that is cut.
    static_cast<void>(!write(file, line.data(), line.size()));
    close(file);
}

} // namespace winnow::ggml
