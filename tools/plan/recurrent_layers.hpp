// Hybrid models: which of their layers attend over keys and values, which keep a state of fixed size, and how large
// that state is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "model_shape.hpp"

namespace winnow::tools {

class ModelKeys;

bool is_hybrid(const std::string& architecture);
std::vector<std::string_view> hybrids();

// By layers; a layer may do both, or neither.
struct LayerKinds {
    std::vector<bool> attends, recurs;
};
// Of an architecture that is not hybrid every layer attends. Throws std::runtime_error as ModelKeys does.
LayerKinds layer_kinds(const ModelKeys& keys, const std::vector<int64_t>& kv_heads);

// q_heads: of the first layer, as llama.cpp takes them for all. Throws std::runtime_error as ModelKeys does.
RecurrentState recurrent_state(const ModelKeys& keys, const LayerKinds& kinds, int64_t q_heads);

} // namespace winnow::tools
