// The cache: sequences, what each layer of each of them holds, and when it evicts. It decides; the device computes
// (device/slots.hpp).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cache/budget.hpp"
#include "device/device.hpp"

namespace winnow::cache {

// winnow_cache_desc, its defaults resolved.
struct CacheRequest {
    std::string config;
    Shape shape;
    int64_t q_heads = 1;
    int64_t max_sequences = 1;
    int64_t cells = 0;
    std::vector<LayerProfile> profile;
};

// winnow_cache_step_desc, checked: see there. Absent tensors have no type.
struct CacheStep {
    int64_t layer = 0, sequence = 0;
    Tensor k, v, q, out;
    Tensor alibi_slopes, head_sink, scores_out;
    float scale = 0; // never 0 here
    float softcap = 0;
    int64_t window_left = 0;
    int64_t draft_tokens = 0;
    Tensor cells, mask, mask_slopes;
};

// winnow_cache_rows_desc, checked.
struct CacheRows {
    int64_t layer = 0, sequence = 0;
    Tensor tokens, k, v;
    bool has_v_in_k = false; // of exact rows: values are the elements of the keys from v_first on
    int64_t v_first = 0;
};

struct CacheState;

// Every function throws Error, and leaves the cache as it was when it does. What can be told from the request alone has
// been checked: sequences, layers and heads are there, numbers and ranges are of positions of the context, or of cells,
// and pressure is no more than 1. What they mean: the functions of the same names in winnow.h.
class Cache {
public:
    Cache(Device& device, const CacheRequest& request);
    ~Cache();
    Cache(const Cache&) = delete;
    Cache& operator=(const Cache&) = delete;

    void step(const CacheStep& args);

    void reserve(int64_t sequence, int64_t tokens);
    void truncate(int64_t sequence, int64_t length);
    void remove(int64_t sequence, int64_t begin, int64_t end);
    void copy(int64_t from, int64_t to);
    void shift(int64_t sequence, int64_t begin, int64_t end, int64_t delta);
    void reset();

    void save(const std::string& path);
    void load(const std::string& path);

    void stats(winnow_cache_stats& out); // all fields but struct_size
    std::vector<int32_t> positions(int64_t sequence, int64_t layer, int64_t head);
    std::vector<float> importance(int64_t sequence, int64_t layer, int64_t head);

    void set_config(const std::string& config);
    std::string config() const;
    void set_pressure(double pressure);
    void anchor(int64_t sequence, std::span<const int64_t> positions);

    void read(const CacheRows& rows);
    void write(const CacheRows& rows);
    void restore(const CacheRows& rows);
    void export_rows(const CacheRows& rows);
    void import_rows(const CacheRows& rows);

private:
    std::unique_ptr<CacheState> state_;
};

// What a cache of this request uses when one sequence has so many tokens.
winnow_cache_stats estimate(const CacheRequest& request, int64_t tokens);

// winnow_cache_info without its memory.
struct Meaning {
    std::string policy, config, storage_config, profile_file;
    bool evicts = false, keeps_importance = false, needs_profile = false;
    Type k = Type::f16, v = Type::f16;
    int64_t sink = 0, residual = 0, cadence = 0, budget_tokens = 0;
};
// What the configuration of a request means; without a profile as if the attention of all layers were alike.
Meaning meaning_of(CacheRequest request);

} // namespace winnow::cache
