// The string that turns virtual caches on: WINNOW_KV, or what the host set later.
#pragma once

#include <string>

#include "plugin.hpp"

namespace winnow::ggml {

// Takes WINNOW_KV. Throws std::runtime_error where it is no configuration.
void read_kv_config(const Plugin& plugin);

// For the buffers that are allocated from now on; "" is in place. Throws, and changes nothing, where it is no
// configuration.
void set_kv_config(const Plugin& plugin, const std::string& config);

// "" is in place.
std::string kv_config();

} // namespace winnow::ggml
