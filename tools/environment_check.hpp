// The variables by which a user tells Winnow something.
#pragma once

#include <string>
#include <vector>

namespace winnow::tools {

// All that a program of Winnow's reads.
const std::vector<std::string>& known_variables();

struct UnknownVariable {
    std::string name, nearest; // the known one that it may stand for, "" for none
};
// Of these names of variables, those that look like Winnow's and are not.
std::vector<UnknownVariable> unknown_among(const std::vector<std::string>& names);

// The names of all variables that are set, in their order.
std::vector<std::string> set_variables();

} // namespace winnow::tools
