// What the user says of a session: the provider options of this execution provider.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime.hpp"

namespace winnow::ort {

constexpr const char* provider_name = "WinnowExecutionProvider";

struct Options {
    std::string kv;         // the configuration of caches, docs/policies.md; "": Winnow's default
    std::string device;     // as in winnow_context_desc
    std::string backend;    // a short name or a path; "": WINNOW_BACKEND, else opencl
    std::string report;     // the file of the report; "": none
    int64_t max_tokens = 0; // of a sequence; 0: as many as the model's cos caches have rows for
    int64_t max_batch = 1;  // rows of a batch, each a sequence of its own
    double pressure = 0;    // of memory, 0 to 1; negative: the system's
};

// Memory pressure: "auto" or a share. Throws where it is neither. key: the option's name, for the message.
double pressure_of(std::string_view key, std::string_view text);

// Throws where an option is unknown or no number of its kind.
Options read_options(const OrtSessionOptions* session);

} // namespace winnow::ort
