// One attention problem with its memory, as the benchmarks of the attention kernels use it.
#pragma once

#include <string>
#include <vector>

#include "harness.hpp"

namespace winnow::bench {

struct AttentionSizes {
    int64_t kv_heads, group, q_len, kv_len, head_size;
    uint32_t k_type, v_type;

    int64_t q_heads() const { return kv_heads * group; }
};

// One for each head size, group and number of keys of the options, in this order: a query token with those formats.
std::vector<AttentionSizes> sizes_of(const Options& options, const Formats& formats = {});
std::vector<AttentionSizes> all_sizes_of(const Options& options); // with each pair of formats of the options
// "q8_0:turbo3 G=4 D=128 keys=2048"
std::string label_of(const AttentionSizes& sizes);

// A cache of one layer and one sequence for such queries; `config` outlives it, and kv_len says nothing of it.
winnow_cache_desc layer_of(const AttentionSizes& sizes, const std::string& config, int64_t context);

class Attention {
public:
    Attention(Backend& backend, const AttentionSizes& sizes);

    void set_causal() { desc_.is_causal = 1; }
    void run() { backend_.run(with(WINNOW_SCORES_NONE)); }
    void run_with_scores() { backend_.run(with(WINNOW_SCORES_BIASED)); }
    // The way without fused kernels: all of K and V made dense, in `dense`, and attention of that. is_possible: whether
    // the backend makes rows dense.
    bool can_dequantize_first(const Attention& dense) { return backend_.can(rows_to(dense, true)); }
    void run_dequantized_first(Attention& dense);
    winnow_sdpa_desc with(uint32_t scores_mode) const;
    std::string variant() { return backend_.variant(with(WINNOW_SCORES_NONE)); }

    const AttentionSizes& sizes() const { return sizes_; }
    const Memory& q() const { return q_; }
    const Memory& k() const { return k_; }
    const Memory& v() const { return v_; }
    const Memory& out() const { return out_; }
    const Memory& scores() const { return scores_; }

private:
    winnow_kv_dequantize_desc rows_to(const Attention& dense, bool keys) const;

    Backend& backend_;
    AttentionSizes sizes_;
    Memory q_, k_, v_, out_, scores_;
    winnow_tensor q_tensor_, k_tensor_, v_tensor_, out_tensor_, scores_tensor_;
    winnow_sdpa_desc desc_{};
};

// A cache of one sequence that has seen as many tokens as there are keys, which is all of its context. A query attends
// in each layer without a token that comes, so that the cache stays as it is.
class FilledCache {
public:
    FilledCache(Backend& backend, const std::string& config, const AttentionSizes& sizes,
                const std::vector<uint8_t>& codebooks = {}, int64_t layers = 1);
    ~FilledCache();
    FilledCache(const FilledCache&) = delete;
    FilledCache& operator=(const FilledCache&) = delete;

    void attend(int64_t layer = 0);
    winnow_cache_stats stats() { return backend_.stats(cache_); }

private:
    void append(int64_t tokens);

    Backend& backend_;
    AttentionSizes sizes_;
    int64_t layers_;
    Memory q_, kv_, out_;
    winnow_cache* cache_ = nullptr;
};

// ggml's flash attention on the CPU, for the same problem. reads() is false where ggml has no such formats or
// the program was built without it.
class GgmlAttention {
public:
    static bool reads(uint32_t k_type, uint32_t v_type);
    GgmlAttention(const Attention& problem, bool is_causal, uint32_t threads);
    ~GgmlAttention();
    void run();

private:
    struct State;
    std::unique_ptr<State> state_;
};

} // namespace winnow::bench
