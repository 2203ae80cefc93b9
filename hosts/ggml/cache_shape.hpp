// The tensors that a virtual cache stands for, and the shape that the first attention over them tells.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ggml.h"
#include "winnow_cache.h"

namespace winnow::ggml {

// The tensors of a layer. Without v the values are a part of the keys (MLA).
struct LayerRoots {
    const ggml_tensor* k = nullptr;
    const ggml_tensor* v = nullptr;
};

// Functions throw std::runtime_error with the reason.
class CacheShape {
public:
    // Layers of one shape, in the order of the model.
    explicit CacheShape(std::vector<LayerRoots> layers);

    const std::vector<LayerRoots>& layers() const { return layers_; }
    std::vector<std::string> layer_names() const;
    const char* name() const { return layers_.front().k->name; } // of the first tensor
    int64_t cells() const { return layers_.front().k->ne[1]; }   // of one stream
    int64_t streams() const { return layers_.front().k->ne[2]; }
    uint64_t full_bytes() const; // that llama.cpp has reserved
    bool has(const ggml_tensor* root) const { return layer_of_.count(root) != 0; }
    size_t layer_of(const ggml_tensor* root) const { return layer_of_.at(root); }
    bool is_keys(const ggml_tensor* root) const { return root == layers_[layer_of(root)].k; }

    // Whether a cache of this shape could carry out an attention, before or as it is computed; throws where not. The
    // first tells the heads of all.
    void check_supported(const ggml_tensor* node, const winnow_sdpa_desc& sdpa);

    // The node that computes the mask of an attention, as an index of tokens does; "" where the host fills it in.
    static std::string computed_mask(const ggml_tensor* node);
    // Whether there are such attentions. Their masks differ from layer to layer, and a cell that one hides may be seen
    // by the next token.
    bool has_computed_masks() const { return has_computed_masks_; }
    void note_computed_masks() { has_computed_masks_ = true; }

    // What is told by the first attention; all 0 before it.
    int64_t q_heads() const { return desc_.q_num_heads; }
    int64_t kv_heads() const { return desc_.kv_num_heads; }
    int64_t head_size() const { return desc_.head_size; }
    int64_t v_head_size() const { return desc_.v_head_size; }
    int64_t v_skip() const { return v_skip_; }       // where a head's values begin, in elements; with MLA in the keys
    winnow_cache_desc desc() const { return desc_; } // without a configuration
    // `count` rows of a root as llama.cpp has them, at `data`.
    winnow_tensor rows(const ggml_tensor* root, const void* data, int64_t count) const;

    // Calls action(stream, first, count) for the cells, of one stream at a time, of which there are bytes in the range.
    template <typename Action>
    void each_stream(const ggml_tensor* root, size_t offset, size_t size, Action&& action) const {
        const size_t row = root->nb[1];
        const auto end = static_cast<int64_t>((offset + size + row - 1) / row);
        for (auto at = static_cast<int64_t>(offset / row); at < end;) {
            const int64_t stream = at / cells(), count = std::min(end, (stream + 1) * cells()) - at;
            action(stream, at % cells(), count);
            at += count;
        }
    }

private:
    void take(const ggml_tensor* node, const winnow_sdpa_desc& sdpa);

    std::vector<LayerRoots> layers_;
    std::map<const ggml_tensor*, size_t> layer_of_;
    winnow_cache_desc desc_{};
    int64_t v_skip_ = 0;
    bool has_computed_masks_ = false;
};

} // namespace winnow::ggml
