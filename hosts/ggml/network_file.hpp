// The file that `network_file` of a configuration names: the networks by whose predictions the policy learned ranks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow::ggml {

// The numbers of the resource "network" for these layers. Without layers the file is checked alone. Throws
// std::runtime_error where the path is empty, or the file cannot be read, is none of these, lacks one of the layers, or
// has another number of KV heads.
std::vector<double> read_network(const std::string& path, const std::vector<std::string>& layers, int64_t kv_heads);

} // namespace winnow::ggml
