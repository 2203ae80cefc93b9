// Which of a model's caches has the layers with sliding windows, told by the masks of a whole graph: llama.cpp gives
// those layers a cache and a mask of their own, wherever the other cache lies.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "ggml.h"

namespace winnow::ggml {

// The tensor that a mask is a copy of, or that computes it, or the mask itself.
const ggml_tensor* source_of_mask(const ggml_tensor* mask);

// The attentions of a graph over caches of any backend.
class AttentionMasks {
public:
    explicit AttentionMasks(const ggml_cgraph* part); // any part of the graph
    const std::vector<const ggml_tensor*>& attentions() const { return attentions_; }
    // Where the attentions over a cache's keys are those of windows, keys of the other layers; else NULL. Of two masks
    // the windows' is the one whose cache has fewer cells; where both have as many, the one that was made later.
    const ggml_tensor* keys_without_windows(const ggml_tensor* keys) const;

private:
    std::vector<const ggml_tensor*> attentions_;
    std::map<const ggml_tensor*, const ggml_tensor*> mask_of_; // by keys
};

} // namespace winnow::ggml
