// `winnow doctor`: whether all is there that Winnow needs on this machine, and what to do where it is not.
#pragma once

#include <iosfwd>

namespace winnow::tools {

// Prints a line for each check, "ok", "warn" or "FAIL", with the cure in the next one; or JSON. Returns the exit
// status: 1 if a check failed.
int run_doctor(bool json, std::ostream& out);

} // namespace winnow::tools
