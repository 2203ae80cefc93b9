// Looking a key up in a string that the backend has accepted.
#pragma once

#include <string>
#include <string_view>

namespace winnow::ggml {

// The value of a key in a configuration, "" where it has none.
std::string value_of(const std::string& config, std::string_view key);

} // namespace winnow::ggml
