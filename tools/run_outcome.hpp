// Whether Winnow was called in a run, in a line, or why not, and what to do: from what the plugin noted in the
// processes of the program (hosts/ggml/run_log.hpp).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "run_child.hpp"
#include "run_flags.hpp"

namespace winnow::tools {

// All processes together.
struct RunNotes {
    bool is_loaded = false, is_used = false, has_computed = false;
    uint64_t attention_calls = 0, graphs = 0, cache_bytes = 0; // of contexts that have ended
    bool has_uncounted = false;                                // a process computed and made no report
    std::vector<std::string> devices, configs;                 // each once
    std::vector<std::string> errors;                           // of the plugin, in their order
    std::vector<std::string> warnings;                         // but those of caches in place
    std::vector<std::string> in_place;                         // caches that were to be virtual: "NAME: reason"
};
// The text of the file. Lines that are none of the plugin's are passed over.
RunNotes read_notes(const std::string& text);

struct Run {
    std::vector<std::string> command; // as it was started
    ProgramFlags flags;               // of the program
    Ended ended;
    RunNotes notes;
};

struct Outcome {
    bool called = false;
    std::string line, cure; // for a person, without "winnow: "; a cure may be missing
};
Outcome outcome_of(const Run& run);

} // namespace winnow::tools
