// What the user says of virtual caches: WINNOW_KV and WINNOW_KV_SWA, or what the host set later.
#pragma once

#include <string>
#include <vector>

#include "kv_rules.hpp"
#include "plugin.hpp"

namespace winnow::ggml {

struct KvConfig {
    std::string text;        // as it was given; "" is in place
    std::vector<KvRule> all; // of caches by their shapes
    // For the cache of a model's layers with sliding windows, which holds no more than those need: WINNOW_KV_SWA, or
    // else what stores rows as `all` does and evicts nothing.
    std::vector<KvRule> windows;
    bool is_set() const { return !text.empty(); }
};

// Takes WINNOW_KV. Where it is no configuration, or WINNOW_KV_SWA is set without it, no buffer is made until the host
// sets one that is: a program does not go on with another cache than was asked for.
void read_kv_config(const Plugin& plugin);

// For the buffers that are allocated from now on; "" is in place. Throws std::runtime_error, and changes nothing, where
// it is neither a configuration nor rules of such, or WINNOW_KV_SWA is no configuration.
void set_kv_config(const Plugin& plugin, const std::string& config);

// Throws std::runtime_error where WINNOW_KV, WINNOW_PRESSURE or WINNOW_DECODE_FROM was refused.
KvConfig kv_config();
bool has_kv_config();

} // namespace winnow::ggml
