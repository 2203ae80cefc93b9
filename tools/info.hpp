// `winnow info`: what there is on this machine, and what Winnow would do with it.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "open_backend.hpp"

namespace winnow::tools {

struct InfoOptions {
    std::vector<std::string> backends; // empty: opencl and reference, and a missing one is only mentioned
    std::string device;                // empty: all
    std::string variants;
    bool json = false;
};

// What there is of a backend: its `path` and `version`, its `devices`, `error`. Returns whether its devices can be
// used.
bool add_backend(const OpenBackend& opened, const InfoOptions& options, nlohmann::ordered_json& backend);

// Returns the exit status: 0, or 1 if a backend or device that was asked for cannot be used.
int run_info(const InfoOptions& options, std::ostream& out, std::ostream& err);

} // namespace winnow::tools
