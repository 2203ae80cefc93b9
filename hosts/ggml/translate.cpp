// The shapes of FLASH_ATTN_EXT and SET_ROWS, axis by axis. ggml.h and ggml-cpu's ops.cpp are what defines the two.
#include "translate.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string_view>

#include "tensors.hpp"

namespace winnow::ggml {

namespace {

// How Winnow names a ggml type, and how many elements lie in how many bytes; {} for types it does not have.
struct Storage {
    uint32_t type = 0;
    int64_t block_elements = 0;
    size_t block_bytes = 0;
    bool packed() const { return block_elements > 1; }
};

Storage storage_of(enum ggml_type type) {
    switch (type) {
    case GGML_TYPE_F32: return {WINNOW_TYPE_F32, 1, 4};
    case GGML_TYPE_F16: return {WINNOW_TYPE_F16, 1, 2};
    case GGML_TYPE_BF16: return {WINNOW_TYPE_BF16, 1, 2};
    case GGML_TYPE_I32: return {WINNOW_TYPE_I32, 1, 4};
    case GGML_TYPE_I64: return {WINNOW_TYPE_I64, 1, 8};
    case GGML_TYPE_Q8_0: return {WINNOW_TYPE_Q8_0, 32, 34};
    case GGML_TYPE_Q5_1: return {WINNOW_TYPE_Q5_1, 32, 24};
    case GGML_TYPE_Q5_0: return {WINNOW_TYPE_Q5_0, 32, 22};
    case GGML_TYPE_Q4_1: return {WINNOW_TYPE_Q4_1, 32, 20};
    case GGML_TYPE_Q4_0: return {WINNOW_TYPE_Q4_0, 32, 18};
    case GGML_TYPE_IQ4_NL: return {WINNOW_TYPE_IQ4_NL, 32, 18};
    default: return {};
    }
}

// A tensor whose axes are the node's in reverse: [ne3, ne2, ne1, ne0]. A packed row is one run of bytes, without a
// stride inside.
bool describe(const ggml_tensor* from, winnow_tensor& to) {
    const Storage storage = storage_of(from->type);
    if (storage.type == 0 || from->nb[0] != storage.block_bytes) return false;
    to = winnow_tensor{};
    to.struct_size = sizeof to;
    to.type = storage.type;
    to.data = from->data;
    for (int axis = 0; axis < 4; ++axis) {
        to.shape[3 - axis] = from->ne[axis];
        to.stride[3 - axis] = static_cast<int64_t>(from->nb[axis]);
        if (from->ne[axis] < 1) return false;
    }
    if (storage.packed()) to.stride[3] = 0;
    return true;
}

// The fields are in op_params in this order: scale, max_bias, logit_softcap.
float parameter(const ggml_tensor* node, int index) { return reinterpret_cast<const float*>(node->op_params)[index]; }

// From a tensor's first byte to one past its last.
struct Range {
    uintptr_t begin, end;
    explicit Range(const ggml_tensor* tensor) : begin(reinterpret_cast<uintptr_t>(tensor->data)), end(begin) {
        const Storage storage = storage_of(tensor->type);
        for (int axis = 1; axis < 4; ++axis) end += uintptr_t(tensor->ne[axis] - 1) * uintptr_t(tensor->nb[axis]);
        end += uintptr_t(tensor->ne[0] / storage.block_elements) * storage.block_bytes;
    }
    bool overlaps(const Range& other) const { return begin < other.end && other.begin < end; }
};

// Whether what is added is a bias of keys, or one of queries, keys and values that llama.cpp puts together.
bool has_key_bias(const ggml_tensor* added) {
    if (added->op == GGML_OP_CONCAT) return has_key_bias(added->src[0]) || has_key_bias(added->src[1]);
    const std::string_view name = added->name;
    return name.ends_with(".attn_k.bias") || name.ends_with(".attn_qkv.bias");
}

} // namespace

uint32_t type_of(enum ggml_type type) { return storage_of(type).type; }

bool SdpaNode::translate(const ggml_tensor* node, const float* slopes) {
    const ggml_tensor* q = node->src[0];
    const ggml_tensor* k = node->src[1];
    const ggml_tensor* v = node->src[2];
    const ggml_tensor* mask = node->src[3];
    const ggml_tensor* sink = node->src[4];
    desc_ = winnow_sdpa_desc{};
    desc_.struct_size = sizeof desc_;
    if (!describe(q, q_) || !describe(k, k_) || !describe(v, v_) || !describe(node, out_)) return false;
    // The result is stored token by token, [batch][token][head][element]; Winnow's axes are (batch, head, token,
    // element).
    std::swap(out_.shape[1], out_.shape[2]);
    std::swap(out_.stride[1], out_.stride[2]);
    desc_.q = &q_;
    desc_.k = &k_;
    desc_.v = &v_;
    desc_.out = &out_;
    if (mask) {
        if (!describe(mask, mask_)) return false;
        desc_.attn_mask = &mask_;
    }
    if (parameter(node, 1) > 0.0f) {
        slopes_ = flat(WINNOW_TYPE_F32, sizeof(float), slopes, q->ne[2]);
        desc_.mask_slopes = &slopes_;
    }
    if (sink) {
        if (!describe(sink, sink_)) return false;
        desc_.head_sink = &sink_;
    }
    desc_.scale = parameter(node, 0);
    desc_.softcap = parameter(node, 2);
    // A scale of 0 is Winnow's default and not a factor.
    return desc_.scale != 0.0f;
}

bool sets_no_rows(const ggml_tensor* node) {
    const ggml_tensor* rows = node->src[0];
    return rows->ne[1] == 0 && storage_of(node->type).type != 0;
}

bool stores_biased_keys(const ggml_tensor* node) {
    constexpr int longest = 16; // from the rows back to the weights: views, the rotation, the addition
    const ggml_tensor* rows = node->src[0];
    for (int step = 0; rows && step < longest; ++step, rows = rows->src[0])
        if (rows->op == GGML_OP_ADD && has_key_bias(rows->src[1])) return true;
    return false;
}

bool has_work(const ggml_tensor* node) {
    if (!(node->flags & GGML_TENSOR_FLAG_COMPUTE)) return false;
    switch (node->op) {
    case GGML_OP_NONE:
    case GGML_OP_RESHAPE:
    case GGML_OP_VIEW:
    case GGML_OP_PERMUTE:
    case GGML_OP_TRANSPOSE: return false;
    case GGML_OP_SET_ROWS: return !sets_no_rows(node);
    default: return true; // what supports_op does not claim does not come
    }
}

bool AppendNode::Side::translate(const ggml_tensor* node) {
    const ggml_tensor* rows = node->src[1];
    // node is a view of the cache, with the cache's shape.
    if (!describe(node->src[0], src) || !describe(node, cache)) return false;
    // Indices are [tokens, heads or 1, batch or 1]; their rows need not be contiguous here, only their elements.
    if (!describe(rows, indices)) return false;
    indices.shape[0] = rows->ne[2];
    indices.stride[0] = static_cast<int64_t>(rows->nb[2]);
    indices.shape[1] = rows->ne[1];
    indices.stride[1] = static_cast<int64_t>(rows->nb[1]);
    indices.shape[2] = 1;
    indices.stride[2] = static_cast<int64_t>(rows->nb[1]);
    return rows->ne[3] == 1;
}

bool AppendNode::translate(const ggml_tensor* first, const ggml_tensor* second) {
    desc_ = winnow_kv_append_desc{};
    desc_.struct_size = sizeof desc_;
    if (!k_.translate(first)) return false;
    desc_.k_src = &k_.src;
    desc_.k_cache = &k_.cache;
    desc_.k_row_indices = &k_.indices;
    if (!second) return true;
    if (!v_.translate(second)) return false;
    desc_.v_src = &v_.src;
    desc_.v_cache = &v_.cache;
    desc_.v_row_indices = &v_.indices;
    for (int axis = 0; axis < 3; ++axis) {
        if (k_.src.shape[axis] != v_.src.shape[axis]) return false;
    }
    for (int axis = 0; axis < 2; ++axis) {
        if (k_.indices.shape[axis] != v_.indices.shape[axis]) return false;
    }
    if (k_.indices.type != v_.indices.type || k_.src.type != v_.src.type) return false;
    const Range k_cache(first), v_cache(second);
    return !k_cache.overlaps(v_cache) && !k_cache.overlaps(Range(second->src[0])) &&
           !k_cache.overlaps(Range(second->src[1])) && !v_cache.overlaps(Range(first->src[0])) &&
           !v_cache.overlaps(Range(first->src[1]));
}

const float* SlopeCache::get(const ggml_tensor* node) {
    const float max_bias = parameter(node, 1);
    if (!(max_bias > 0.0f)) return nullptr;
    const int64_t heads = node->src[0]->ne[2];
    for (const Entry& entry : entries_) {
        if (entry.heads == heads && entry.max_bias == max_bias) return entry.slopes.get();
    }
    // Geometric: 2^-(max_bias/n) and its powers for the first n heads, n the power of two up to `heads`; the odd powers
    // of its square root for the rest.
    int64_t base_heads = 1;
    while (base_heads * 2 <= heads) base_heads *= 2;
    const float base = std::pow(2.0f, -max_bias / static_cast<float>(base_heads));
    const float half_base = std::pow(2.0f, -max_bias / 2.0f / static_cast<float>(base_heads));
    auto slopes = std::make_unique<float[]>(static_cast<size_t>(heads));
    for (int64_t h = 0; h < heads; ++h) {
        slopes[static_cast<size_t>(h)] = h < base_heads
                                             ? std::pow(base, static_cast<float>(h + 1))
                                             : std::pow(half_base, static_cast<float>(2 * (h - base_heads) + 1));
    }
    entries_.push_back({heads, max_bias, std::move(slopes)});
    return entries_.back().slopes.get();
}

} // namespace winnow::ggml
