// Looking for the masks of attentions over caches, by the caches' names.
#include "attention_masks.hpp"

#include <algorithm>
#include <functional>
#include <string_view>

#include "ggml-impl.h"

#include "cache_name.hpp"
#include "ggml_api.hpp"

namespace winnow::ggml {

namespace {

// llama.cpp makes the inputs of a graph one after the other in one block of memory. A copy that the scheduler makes of
// an input for another backend lies elsewhere, and a mask that a layer computes is not an input.
bool is_made_after(const ggml_tensor* mask, const ggml_tensor* other) {
    const auto is_input = [](const ggml_tensor* tensor) {
        return tensor->op == GGML_OP_NONE && std::string_view(tensor->name).find('#') == std::string_view::npos;
    };
    return is_input(mask) && is_input(other) && std::greater<>()(mask, other);
}

} // namespace

const ggml_tensor* source_of_mask(const ggml_tensor* mask) {
    const ggml_tensor* at = mask;
    while (at->op == GGML_OP_CPY || at->op == GGML_OP_CONT || at->op == GGML_OP_VIEW || at->op == GGML_OP_RESHAPE)
        at = at->src[0];
    return at;
}

AttentionMasks::AttentionMasks(const ggml_cgraph* part) {
    const ggml_hash_set& all = part->visited_hash_set; // of the whole graph
    for (size_t i = 0; i < all.size; ++i) {
        const ggml_tensor* node = ggml_bitset_get(all.used, i) ? all.keys[i] : nullptr;
        if (!node || node->op != GGML_OP_FLASH_ATTN_EXT || !node->src[3]) continue;
        const ggml_tensor* keys = root_of(node->src[1]);
        if (CacheName(keys->name).letter != 'k') continue;
        attentions_.push_back(node);
        mask_of_[keys] = source_of_mask(node->src[3]);
    }
}

const ggml_tensor* AttentionMasks::keys_without_windows(const ggml_tensor* keys) const {
    const auto own = mask_of_.find(keys);
    if (own == mask_of_.end()) return nullptr;
    const auto found = std::find_if(mask_of_.begin(), mask_of_.end(), [&](const auto& other) {
        const int64_t cells = keys->ne[1], others = other.first->ne[1];
        return other.second != own->second &&
               (cells < others || (cells == others && is_made_after(own->second, other.second)));
    });
    return found == mask_of_.end() ? nullptr : found->first;
}

} // namespace winnow::ggml
