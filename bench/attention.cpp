// An attention problem, and a cache, through the C ABI.
#include "attention.hpp"

#include <algorithm>

namespace winnow::bench {
namespace {

constexpr int64_t chunk = 32; // tokens that are handed over at once

winnow_cache_step_desc no_step() {
    winnow_cache_step_desc desc{};
    desc.struct_size = sizeof desc;
    return desc;
}

} // namespace

std::vector<AttentionSizes> sizes_of(const Options& options, const Formats& formats) {
    std::vector<AttentionSizes> all;
    for (const int64_t head_size : options.head_sizes)
        for (const int64_t group : options.groups)
            for (const int64_t keys : options.key_counts)
                all.push_back({options.kv_heads, group, 1, keys, head_size, formats.k, formats.v});
    return all;
}

std::vector<AttentionSizes> all_sizes_of(const Options& options) {
    std::vector<AttentionSizes> all;
    for (const Formats& formats : options.formats) {
        const std::vector<AttentionSizes> sizes = sizes_of(options, formats);
        all.insert(all.end(), sizes.begin(), sizes.end());
    }
    return all;
}

std::string label_of(const AttentionSizes& sizes) {
    return type_names(sizes.k_type, sizes.v_type) + " G=" + std::to_string(sizes.group) +
           " D=" + std::to_string(sizes.head_size) + " keys=" + std::to_string(sizes.kv_len);
}

winnow_cache_desc layer_of(const AttentionSizes& sizes, const std::string& config, int64_t context) {
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = config.c_str();
    desc.layers = 1;
    desc.q_num_heads = sizes.q_heads();
    desc.kv_num_heads = sizes.kv_heads;
    desc.head_size = sizes.head_size;
    desc.context = context;
    return desc;
}

Attention::Attention(Backend& backend, const AttentionSizes& sizes)
    : backend_(backend), sizes_(sizes), q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sizes.q_len * sizes.head_size),
      k_(backend, sizes.k_type, sizes.kv_heads * sizes.kv_len, sizes.head_size),
      v_(backend, sizes.v_type, sizes.kv_heads * sizes.kv_len, sizes.head_size),
      out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sizes.q_len * sizes.head_size),
      scores_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sizes.q_len * sizes.kv_len),
      q_tensor_(q_.tensor(1, sizes.q_heads(), sizes.q_len, sizes.head_size)),
      k_tensor_(k_.tensor(1, sizes.kv_heads, sizes.kv_len, sizes.head_size)),
      v_tensor_(v_.tensor(1, sizes.kv_heads, sizes.kv_len, sizes.head_size)),
      out_tensor_(out_.tensor(1, sizes.q_heads(), sizes.q_len, sizes.head_size)),
      scores_tensor_(scores_.tensor(1, sizes.q_heads(), sizes.q_len, sizes.kv_len)) {
    desc_.struct_size = sizeof desc_;
    desc_.q = &q_tensor_;
    desc_.k = &k_tensor_;
    desc_.v = &v_tensor_;
    desc_.out = &out_tensor_;
    desc_.q_offset = sizes.kv_len - sizes.q_len;
}

winnow_sdpa_desc Attention::with(uint32_t scores_mode) const {
    winnow_sdpa_desc desc = desc_;
    desc.scores_mode = scores_mode;
    desc.scores_out = scores_mode == WINNOW_SCORES_NONE ? nullptr : &scores_tensor_;
    return desc;
}

winnow_kv_dequantize_desc Attention::rows_to(const Attention& dense, bool keys) const {
    winnow_kv_dequantize_desc desc{};
    desc.struct_size = sizeof desc;
    desc.src = keys ? &k_tensor_ : &v_tensor_;
    desc.dst = keys ? &dense.k_tensor_ : &dense.v_tensor_;
    return desc;
}

void Attention::run_dequantized_first(Attention& dense) {
    backend_.enqueue(rows_to(dense, true));
    backend_.enqueue(rows_to(dense, false));
    dense.run();
}

FilledCache::FilledCache(Backend& backend, const std::string& config, const AttentionSizes& sizes,
                         const std::vector<uint8_t>& codebooks, int64_t layers)
    : backend_(backend), sizes_(sizes), layers_(layers),
      q_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sizes.head_size),
      kv_(backend, WINNOW_TYPE_F32, sizes.kv_heads * chunk * sizes.head_size),
      out_(backend, WINNOW_TYPE_F32, sizes.q_heads() * sizes.head_size) {
    winnow_cache_desc desc = layer_of(sizes, config, sizes.kv_len);
    desc.layers = layers;
    const winnow_resource resource = {sizeof resource, 0, "codebooks", codebooks.data(), codebooks.size()};
    if (!codebooks.empty()) {
        desc.resources = &resource;
        desc.resource_count = 1;
        desc.resource_stride = sizeof resource;
    }
    cache_ = backend.make_cache(desc);
    for (int64_t begin = 0; begin < sizes.kv_len; begin += chunk) append(std::min(chunk, sizes.kv_len - begin));
}

FilledCache::~FilledCache() { backend_.destroy(cache_); }

void FilledCache::append(int64_t tokens) {
    winnow_cache_step_desc desc = no_step();
    const winnow_tensor kv = kv_.tensor(1, sizes_.kv_heads, tokens, sizes_.head_size);
    desc.k = desc.v = &kv;
    for (desc.layer = 0; desc.layer < layers_; ++desc.layer) backend_.run(cache_, desc);
}

void FilledCache::attend(int64_t layer) {
    winnow_cache_step_desc desc = no_step();
    const winnow_tensor q = q_.tensor(1, sizes_.q_heads(), 1, sizes_.head_size);
    const winnow_tensor out = out_.tensor(1, sizes_.q_heads(), 1, sizes_.head_size);
    desc.q = &q;
    desc.out = &out;
    desc.layer = layer;
    backend_.run(cache_, desc);
}

} // namespace winnow::bench
