// The report of a session: which nodes Winnow computed, how often, and why it did not compute others.
#pragma once

#include <string>
#include <vector>

#include "computed_node.hpp"

namespace winnow::ort {

// An attention node that stays with the runtime's own kernels.
struct RefusedNode {
    std::string name, op, reason;
    std::string output; // its first one, which no other node has
    bool operator==(const RefusedNode&) const = default;
};

struct ReportContents {
    const Backend& backend;
    const SessionCache& cache;
    const std::vector<const ComputedNode*>& computed;
    const std::vector<RefusedNode>& refused;
};
std::string to_json(const ReportContents& contents);

// Throws where the file cannot be written.
void write_report(const std::string& path, const std::string& text);

} // namespace winnow::ort
