// A file that readers see whole or not at all.
#pragma once

#include <string>

namespace winnow::tools {

// The text is written beside its place and takes it when it is complete. A link, a pipe or a device stays what it is
// and is written to. Throws std::runtime_error with the system's reason.
void write_file(const std::string& path, const std::string& text);

} // namespace winnow::tools
