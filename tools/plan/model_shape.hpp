// What a model's cache looks like, from the metadata of its file: as llama.cpp makes it, and hosts/ggml divides it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace winnow::tools {

class GgufHeader;

// Layers whose tensors have the same shape: one cache of Winnow's.
struct LayerGroup {
    std::vector<int64_t> layers; // their numbers, ascending
    int64_t q_heads = 0, kv_heads = 0;
    int64_t k_size = 0, v_size = 0; // of a head
    int64_t window = 0;             // tokens of a sliding window that bounds llama.cpp's cache; 0: none
    bool values_in_keys = false; // latent attention: llama.cpp stores keys alone, whose first elements are the values
};

// What layers keep of a sequence beside keys and values, however long it is: of a state-space model, of linear
// attention or of a short convolution. Winnow leaves it to llama.cpp.
struct RecurrentState {
    int64_t layers = 0;
    uint64_t bytes = 0; // of one sequence
};

struct ModelShape {
    std::string architecture, name; // name: "" where the file has none
    int64_t layers = 0;
    int64_t trained_context = 0; // 0: unknown
    std::vector<LayerGroup> groups;
    RecurrentState recurrent;
    bool has_key_bias = false; // as in Qwen2: keys have a few channels with large constants
};

// Throws std::runtime_error where the metadata is missing, contradicts itself, or is of an architecture whose cache is
// not known here or stays in place, whole or in part: a refusal, where the bytes would be wrong.
ModelShape read_shape(const GgufHeader& header);

// The cells of one sequence that llama.cpp makes for a context of so many tokens.
int64_t cells_of(const LayerGroup& group, int64_t context, int64_t ubatch);

} // namespace winnow::tools
