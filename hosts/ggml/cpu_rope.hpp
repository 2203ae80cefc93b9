// Rotary embeddings by the host's own CPU backend, whose variations (YaRN, frequency factors, order of the pairs) a
// node only names.
#pragma once

#include <cstdint>
#include <vector>

#include "ggml.h"

namespace winnow::ggml {

// Rotates rows [positions][heads][elements] in place as `node`, a ROPE, says, by these positions. Throws
// std::runtime_error where the host has no CPU backend, or it fails.
void rotate_on_cpu(const ggml_tensor* node, std::vector<float>& rows, int64_t heads, int64_t elements,
                   const std::vector<int32_t>& positions);

} // namespace winnow::ggml
