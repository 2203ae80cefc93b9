// Starting a program in place of this one: with its terminal, input, output and signals.
#pragma once

#include <chrono>
#include <string>
#include <vector>

namespace winnow::tools {

struct Ended {
    int status = 0; // for a shell: the program's own, or 128 and the signal
    int signal = 0; // which ended it; 0: none
};

// The file that execvp would start; one that is there and cannot be executed where there is no better one; "" where
// there is none.
std::string find_program(const std::string& name);

// Runs command[0] with these arguments until it ends, and hands on to it the signals that a process sent to this
// process, but not those that reached the program, too: sent by the terminal, or to the whole process group. Throws
// std::runtime_error where it cannot be started.
Ended run_child(const std::vector<std::string>& command);

// What a program writes to its output and error output, with an empty input and without GGML_BACKEND_PATH; nothing from
// one that takes longer, which is ended.
std::string output_of(const std::vector<std::string>& command, std::chrono::milliseconds most);

} // namespace winnow::tools
