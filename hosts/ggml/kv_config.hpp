// The string that turns virtual caches on: WINNOW_KV, or what the host set later.
#pragma once

#include <string>

#include "plugin.hpp"

namespace winnow::ggml {

// Takes WINNOW_KV. Where it is no configuration, no buffer is made until the host sets one that is: a program does not
// go on with another cache than was asked for.
void read_kv_config(const Plugin& plugin);

// For the buffers that are allocated from now on; "" is in place. Throws std::runtime_error, and changes nothing, where
// it is no configuration.
void set_kv_config(const Plugin& plugin, const std::string& config);

// "" is in place. Throws std::runtime_error where WINNOW_KV was refused.
std::string kv_config();
bool has_kv_config();

// For the cache of a model's layers with sliding windows, which holds no more than those need: WINNOW_KV_SWA, or else
// the formats of `config` alone, with which nobody is evicted.
std::string window_config(const std::string& config);

} // namespace winnow::ggml
