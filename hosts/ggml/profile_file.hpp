// The file that `profile_file` of a configuration names: for each layer three numbers, by which adaptive_budget
// divides.
#pragma once

#include <string>
#include <vector>

namespace winnow::ggml {

// Entropy, concentration and variance of each of these layers, one after the other; empty where the path is. Throws
// std::runtime_error where the file cannot be read, is no profile, or lacks one of the layers.
std::vector<double> read_profile(const std::string& path, const std::vector<std::string>& layers);

} // namespace winnow::ggml
