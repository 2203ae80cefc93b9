// The shapes of a model's layers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace winnow::cache {

struct LayerShape {
    int64_t q_heads = 1; // a multiple of kv_heads
    int64_t kv_heads = 1;
    int64_t head_size = 1;                                                   // of keys
    int64_t v_head_size = 1;                                                 // of values
    friend auto operator<=>(const LayerShape&, const LayerShape&) = default; // NOLINT(modernize-use-nullptr)
};

struct Shape {
    std::vector<LayerShape> layers;
    int64_t context = 1; // tokens
    int64_t cells = 0;   // of a host that names its own

    int64_t layer_count() const { return static_cast<int64_t>(layers.size()); }
    const LayerShape& layer(int64_t number) const { return layers[static_cast<size_t>(number)]; }
    std::vector<int64_t> unlike_layers() const; // of each shape the first layer that has it
};

// K and V of so many tokens in f16, nothing else: of a layer, and of all. Throw Error from 2^64 bytes on.
uint64_t full_bytes(const LayerShape& shape, int64_t tokens);
uint64_t full_bytes(const Shape& shape, int64_t tokens);

} // namespace winnow::cache
