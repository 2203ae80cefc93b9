// From a node of a ggml graph to a description of Winnow's.
//
// ggml counts axes innermost first (ne[0] is the row), Winnow outermost first; both use strides in bytes.
//
// ggml's blocks of 32 are storage formats of Winnow's, so such a cache is handed over as it lies. Types that Winnow
// does not store, which llama.cpp offers for no cache, are left to ggml's CPU backend.
#pragma once

#include <memory>
#include <vector>

#include "ggml.h"
#include "winnow.h"

namespace winnow::ggml {

// Winnow's name of a type, 0 where it has none.
uint32_t type_of(enum ggml_type type);

// FLASH_ATTN_EXT as a winnow_sdpa_desc; the tensors it points to live here, so it is neither copied nor moved.
class SdpaNode {
public:
    // Returns false for what the ABI cannot express: another element type, rows that are not contiguous.
    // slopes: the ALiBi factors of this node's heads, or NULL when only the shape is needed.
    bool translate(const ggml_tensor* node, const float* slopes);
    const winnow_sdpa_desc& desc() const { return desc_; }

    SdpaNode() = default;
    SdpaNode(const SdpaNode&) = delete;
    SdpaNode& operator=(const SdpaNode&) = delete;

private:
    winnow_sdpa_desc desc_{};
    winnow_tensor q_{}, k_{}, v_{}, out_{}, mask_{}, slopes_{}, sink_{};
};

// SET_ROWS of no rows at all into a type that is stored here: nothing to do, and nothing that Winnow would take.
bool sets_no_rows(const ggml_tensor* node);

// Whether the rows that a SET_ROWS stores are keys to which the layer has added a bias, as Qwen2's do. The bias is
// known by llama.cpp's name of its tensor: of keys alone, or of queries, keys and values together.
bool stores_biased_keys(const ggml_tensor* node);

// Whether there is something to compute: not for a view, and not without the flag, where a node only has a shape for
// others.
bool has_work(const ggml_tensor* node);

// One or two SET_ROWS as a winnow_kv_append_desc.
class AppendNode {
public:
    // second may be NULL. Returns false for what the ABI cannot express, and for two nodes that one launch may not
    // carry out: of different shapes, or where one touches what the other writes.
    bool translate(const ggml_tensor* first, const ggml_tensor* second);
    const winnow_kv_append_desc& desc() const { return desc_; }

    AppendNode() = default;
    AppendNode(const AppendNode&) = delete;
    AppendNode& operator=(const AppendNode&) = delete;

private:
    struct Side {
        winnow_tensor src{}, cache{}, indices{};
        bool translate(const ggml_tensor* node);
    };
    winnow_kv_append_desc desc_{};
    Side k_, v_;
};

// The factors that ALiBi multiplies the mask with, head by head. The arrays stay where they are until the cache dies.
class SlopeCache {
public:
    // NULL when the node uses no ALiBi.
    const float* get(const ggml_tensor* node);

private:
    struct Entry {
        int64_t heads;
        float max_bias;
        std::unique_ptr<float[]> slopes;
    };
    std::vector<Entry> entries_;
};

} // namespace winnow::ggml
