// Text for the report.
#pragma once

#include <string>

namespace winnow::ggml {

// With quotes around it.
std::string quoted(const char* text);

} // namespace winnow::ggml
