// The shape of a cache whose layers are all alike, as most tests have it.
#pragma once

#include "cache/plan/budget.hpp"

namespace winnow::cache {

struct AlikeLayers {
    int64_t layers = 1, kv_heads = 1, head_size = 1, v_head_size = 1, context = 1, cells = 0;
    int64_t q_heads = 0; // 0: kv_heads

    AlikeLayers with_q_heads(int64_t heads) const {
        AlikeLayers changed = *this;
        changed.q_heads = heads;
        return changed;
    }
    LayerShape layer() const { return {q_heads > 0 ? q_heads : kv_heads, kv_heads, head_size, v_head_size}; }
    operator Shape() const { // NOLINT: in the place of a Shape
        return {std::vector<LayerShape>(static_cast<size_t>(layers), layer()), context, cells};
    }
};

} // namespace winnow::cache
