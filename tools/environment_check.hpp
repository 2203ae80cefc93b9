// The variables by which a user tells Winnow something.
#pragma once

#include <string>
#include <vector>

namespace winnow::tools {

// The value of a variable; "" where it is not set.
std::string variable(const char* name);

// All that a program of Winnow's reads.
const std::vector<std::string>& known_variables();

struct UnknownVariable {
    std::string name, nearest; // the known one that it may stand for, "" for none
};
// Of these names of variables, those that look like Winnow's and are not.
std::vector<UnknownVariable> unknown_among(const std::vector<std::string>& names);

// Throws std::runtime_error where a text is neither a configuration of caches nor rules of such, whatever the model is;
// the message begins with who said it: "WINNOW_KV=".
void check_kv(const std::string& said_by, const std::string& kv);

// Throws std::runtime_error where WINNOW_KV_SWA is no configuration, or is set without WINNOW_KV.
void check_kv_of_windows();

// The names of all variables that are set, in their order.
std::vector<std::string> set_variables();

} // namespace winnow::tools
