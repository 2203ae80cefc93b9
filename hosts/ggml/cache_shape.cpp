// Comparing what an attention reads with what the cache's tensors have.
#include "cache_shape.hpp"

#include <stdexcept>

#include "attention_masks.hpp"
#include "ggml_api.hpp"
#include "tensors.hpp"
#include "translate.hpp"

namespace winnow::ggml {

namespace {

// Whether a view of keys or values has the root's cells and streams as they lie, beginning with element `skip` of a
// row.
bool is_whole_view(const ggml_tensor* view, const ggml_tensor* root, int64_t skip) {
    const auto row = static_cast<int64_t>(root->nb[1]), stream = static_cast<int64_t>(root->nb[2]),
               element = static_cast<int64_t>(root->nb[0]);
    return view->type == root->type && static_cast<int64_t>(view->nb[1]) == row && view->ne[1] <= root->ne[1] &&
           (view->ne[3] == 1 || static_cast<int64_t>(view->nb[3]) == stream) &&
           (offset_in(root, view->data) - skip * element) % stream == 0 &&
           skip + (view->ne[2] - 1) * static_cast<int64_t>(view->nb[2]) / element + view->ne[0] <= root->ne[0];
}

void check_mask(const ggml_tensor* node, int64_t cells) {
    const ggml_tensor *k = node->src[1], *mask = node->src[3];
    if (!mask || mask->ne[2] != 1 || mask->ne[0] < k->ne[1] || (mask->ne[3] != 1 && mask->ne[3] != k->ne[3])) {
        throw std::runtime_error(with_name(node, "expected a mask with a column for each cell"));
    }
    if (mask->ne[0] == 1 && cells > 1) // Winnow would take it for all of them
        throw std::runtime_error(with_name(node, "the mask has a single column, expected at least two"));
}

} // namespace

CacheShape::CacheShape(std::vector<LayerRoots> layers) : layers_(std::move(layers)) {
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
        layer_of_[layers_[layer].k] = layer;
        if (layers_[layer].v) layer_of_[layers_[layer].v] = layer;
    }
}

std::vector<std::string> CacheShape::layer_names() const {
    std::vector<std::string> names;
    for (const LayerRoots& layer : layers_) names.emplace_back(layer.k->name);
    return names;
}

uint64_t CacheShape::full_bytes() const {
    uint64_t bytes = 0;
    for (const LayerRoots& layer : layers_) bytes += ggml().nbytes(layer.k) + (layer.v ? ggml().nbytes(layer.v) : 0);
    return bytes;
}

void CacheShape::take(const ggml_tensor* node, const winnow_sdpa_desc& sdpa) {
    if (desc_.struct_size != 0) return;
    desc_.struct_size = sizeof desc_;
    desc_.layers = static_cast<int64_t>(layers_.size());
    desc_.q_num_heads = sdpa.q->shape[1];
    desc_.kv_num_heads = sdpa.k->shape[1];
    desc_.head_size = sdpa.k->shape[3];
    desc_.v_head_size = sdpa.v->shape[3];
    desc_.context = desc_.cells = cells();
    desc_.max_sequences = streams();
    const ggml_tensor* k = node->src[1];
    if (!layers_.front().v) v_skip_ = offset_in(k, node->src[2]->data) / static_cast<int64_t>(k->nb[0]);
}

void CacheShape::check_supported(const ggml_tensor* node, const winnow_sdpa_desc& sdpa) {
    take(node, sdpa);
    const ggml_tensor *k = node->src[1], *v = node->src[2];
    const LayerRoots& layer = layers_[layer_of(root_of(k))];
    const ggml_tensor* v_root = layer.v ? layer.v : layer.k;
    if (root_of(k) != layer.k || root_of(v) != v_root || !is_whole_view(k, layer.k, 0) ||
        !is_whole_view(v, v_root, v_skip_) || k->ne[1] != v->ne[1] || k->ne[2] != v->ne[2] || k->ne[3] != v->ne[3]) {
        throw std::runtime_error(with_name(node, std::string("keys or values are a part of ") + layer.k->name +
                                                     ", expected whole rows of its cells, from the first cell on"));
    }
    if (sdpa.q->shape[1] != q_heads() || sdpa.k->shape[1] != kv_heads() || sdpa.k->shape[3] != head_size() ||
        sdpa.v->shape[3] != v_head_size()) {
        throw std::runtime_error(
            with_name(node, std::to_string(sdpa.q->shape[1]) + " query heads, keys and values of " +
                                std::to_string(sdpa.k->shape[1]) + " heads of " + std::to_string(sdpa.k->shape[3]) +
                                " and " + std::to_string(sdpa.v->shape[3]) + "; expected as in the first layer, " +
                                std::to_string(q_heads()) + ", " + std::to_string(kv_heads()) + ", " +
                                std::to_string(head_size()) + " and " + std::to_string(v_head_size())));
    }
    if (node->src[0]->ne[3] != k->ne[3]) {
        throw std::runtime_error(with_name(node, "queries of " + std::to_string(node->src[0]->ne[3]) +
                                                     " streams over keys of " + std::to_string(k->ne[3])));
    }
    check_mask(node, cells());
}

std::string CacheShape::computed_mask(const ggml_tensor* node) {
    const ggml_tensor* source = source_of_mask(node->src[3]);
    return source->op == GGML_OP_NONE ? "" : std::string(ggml().op_name(source->op)) + " " + source->name;
}

winnow_tensor CacheShape::rows(const ggml_tensor* root, const void* data, int64_t count) const {
    const int64_t size = is_keys(root) ? head_size() : v_head_size();
    return rows_over(
        type_of(root->type), data,
        {kv_heads(), count, size, static_cast<int64_t>(root->nb[0]), static_cast<int64_t>(root->nb[1]), size});
}

} // namespace winnow::ggml
