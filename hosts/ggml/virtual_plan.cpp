// What graphs do with virtual tensors, known before they run: ggml's scheduler asks a backend for each node whether it
// would carry it out, and shows it the graph when every node has its backend. llama.cpp plans its graphs when it makes
// a context, so that a buffer whose tensors are used in another way than a Winnow cache can be is in place in time.
#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <sys/mman.h>

#include "ggml-impl.h"

#include "attention_masks.hpp"
#include "ggml_api.hpp"
#include "virtual_buffer.hpp"

namespace winnow::ggml {

namespace {

const ggml_tensor* touched_root(const ggml_tensor* node) {
    if (virtual_buffer_of(node)) return root_of(node);
    for (const ggml_tensor* source : node->src) {
        if (source && virtual_buffer_of(source)) return root_of(source);
    }
    return node;
}

// Whether virtual tensors are among the sources from `first` on.
bool reads_others(const ggml_tensor* node, int first) {
    return std::any_of(node->src + first, node->src + GGML_MAX_SRC,
                       [](const ggml_tensor* source) { return source && virtual_buffer_of(source); });
}

// Tells a graph from the others that there are now, by any of its parts.
const void* graph_of(const ggml_cgraph* part) { return part->visited_hash_set.keys; }

// Whether the whole graph has a node. Another one may lie where a node was that nobody asked for again.
bool has_node(const ggml_cgraph* part, const ggml_tensor* node) {
    return ggml_hash_contains(&part->visited_hash_set, const_cast<ggml_tensor*>(node)) && has_work(node) &&
           virtual_buffer_touched(node);
}

// Without what with_name has added.
std::string without_name(const ggml_tensor* node, const std::string& reason) {
    const std::string name = with_name(node, "");
    return reason.starts_with(name) ? reason.substr(name.size()) : reason;
}

} // namespace

std::string misuse(const ggml_tensor* node) {
    return with_name(node,
                     std::string(touched_root(node)->name) +
                         " is a cache that WINNOW_KV makes virtual; only flash attention (-fa on) can use it, and "
                         "context shifts");
}

void VirtualBuffer::check_supported(const ggml_tensor* node) {
    const ggml_tensor* root = node->view_src;
    const bool writes = root && has_root(root);
    if (node->op == GGML_OP_SET_ROWS && writes && !virtual_buffer_of(node->src[0]) &&
        !virtual_buffer_of(node->src[1])) {
        DeferredRows::check(root, node);
        find_cache(root);
        return;
    }
    if (node->op == GGML_OP_ROPE && writes && root_of(node->src[0]) == root && !reads_others(node, 1)) return;
    SdpaNode sdpa;
    if (node->op == GGML_OP_FLASH_ATTN_EXT && has_root(root_of(node->src[1])) && !virtual_buffer_of(node->src[0]) &&
        !reads_others(node, 3) && sdpa.translate(node, nullptr)) {
        VirtualCache& cache = *find_cache(root_of(node->src[1]));
        cache.check_supported(node, sdpa);
        computed_masks_[node] = CacheShape::computed_mask(node);
        if (is_used_) cache.check_rules(computed_masks_[node]); // else when the whole graph tells where windows are
        return;
    }
    throw std::runtime_error(misuse(node));
}

bool VirtualBuffer::claims(const ggml_tensor* node) {
    if (!has_work(node)) return true;
    claimed_.insert(node);
    refused_nodes_.erase(node); // another one may have been there before
    try {
        check_supported(node);
    } catch (const std::runtime_error& error) {
        refuse(node, error.what());
    }
    return !in_place_;
}

bool VirtualBuffer::has_claimed(const ggml_tensor* node) {
    if (claimed_.count(node) == 0) {
        refuse(node,
               with_name(node, std::string(touched_root(node)->name) +
                                   " is a cache that WINNOW_KV makes virtual, and the scheduler gives the node to "
                                   "another backend than Winnow"));
    }
    return !in_place_;
}

void VirtualBuffer::take_masks(const AttentionMasks& masks) {
    if (is_used_) return;
    for (const ggml_tensor* node : masks.attentions()) {
        const ggml_tensor* keys = root_of(node->src[1]);
        if (!has_root(keys)) continue;
        try {
            if (const ggml_tensor* others = masks.keys_without_windows(keys)) {
                VirtualBuffer* buffer = virtual_buffer_of(others);
                find_cache(keys)->note_windows(buffer ? buffer->find_cache(others) : nullptr);
            }
            find_cache(keys)->check_rules(computed_masks_[node]);
        } catch (const std::runtime_error& error) {
            refuse(node, error.what());
        }
    }
}

void VirtualBuffer::refuse(const ggml_tensor* node, const std::string& reason) {
    if (is_used_)
        refused_nodes_[node] = reason;
    else
        stay_in_place(node, reason);
}

void VirtualBuffer::stay_in_place(const ggml_tensor* node, const std::string& reason) {
    if (mprotect(base_, size_, PROT_READ | PROT_WRITE) != 0) { // what cannot be in place fails
        refused_nodes_[node] = reason;
        return;
    }
#ifdef MADV_HUGEPAGE
    madvise(base_, size_, MADV_HUGEPAGE); // as in buffer.cpp
#endif
    if (fill_ != 0) std::memset(base_, fill_, size_);
    const auto first =
        std::min_element(roots_.begin(), roots_.end(), [](const auto* a, const auto* b) { return a->data < b->data; });
    mark_in_place({(*first)->name, config_.text, roots_.size(), size_, ggml().op_name(node->op), node->name,
                   without_name(node, reason)});
    log_line(GGML_LOG_LEVEL_WARN, "%s", to_text(*in_place_).c_str());
    claimed_.clear();
    caches_.clear();
    context_.reset();
}

void VirtualBuffer::end_plan(const ggml_cgraph* part) {
    refused_graphs_.erase(graph_of(part)); // a graph that was there before, or this one in an earlier plan
    for (const auto& [node, reason] : refused_nodes_) {
        if (has_node(part, node)) refused_graphs_.emplace(graph_of(part), reason);
    }
    claimed_.clear();
    computed_masks_.clear();
    refused_nodes_.clear();
}

void VirtualBuffer::begin_use(const ggml_cgraph* part) {
    if (const auto refused = refused_graphs_.find(graph_of(part)); refused != refused_graphs_.end())
        throw std::runtime_error(refused->second);
    is_used_ = true;
}

void review_plan(const ggml_cgraph* part) {
    const auto is_new = [](const ggml_tensor* node) {
        const VirtualBuffer* buffer = virtual_buffer_touched(node);
        return buffer && buffer->is_planned();
    };
    if (std::none_of(part->nodes, part->nodes + part->n_nodes, is_new)) return; // another part was before this one
    std::set<VirtualBuffer*> planned;
    const ggml_hash_set& all = part->visited_hash_set; // of the whole graph
    for (size_t i = 0; i < all.size; ++i) {
        if (!ggml_bitset_get(all.used, i) || !has_work(all.keys[i])) continue;
        while (VirtualBuffer* buffer = virtual_buffer_touched(all.keys[i])) {
            planned.insert(buffer);
            if (buffer->has_claimed(all.keys[i])) break;
        }
    }
    const AttentionMasks masks(part);
    for (VirtualBuffer* buffer : planned) {
        buffer->take_masks(masks);
        buffer->end_plan(part);
    }
}

} // namespace winnow::ggml
