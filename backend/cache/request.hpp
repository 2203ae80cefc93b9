// What a cache is asked for (its making, a step, rows), as winnow_cache.h describes it, checked; and what can be told
// of a cache before it is made.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/plan/budget.hpp"
#include "device/device.hpp"
#include "winnow_cache.h"

namespace winnow::cache {

// winnow_cache_desc, its defaults resolved.
struct CacheRequest {
    std::string config;
    Shape shape;
    int64_t max_sequences = 1;
    int64_t cells = 0;
    std::vector<LayerProfile> profile;
    std::vector<float> network{};                       // of each layer and KV head, network_numbers; or empty
    std::shared_ptr<std::vector<uint16_t>> codebooks{}; // read_codebooks, or none; emptied once a cache has them
    bool is_described = false;                          // nothing is made of it, so that resources may lack
};

// What winnow_cache_step_desc has for one sequence, checked: see there. Absent tensors have no type.
struct CacheStep {
    int64_t layer = 0, sequence = 0;
    bool may_wait = true;
    Tensor k, v, q, out;
    Tensor alibi_slopes, head_sink, scores_out;
    float scale = 0; // never 0 here
    float softcap = 0;
    int64_t window_left = 0;
    int64_t draft_tokens = 0;
    Tensor cells, mask, mask_slopes;

    int64_t appended() const { return k ? k.shape[2] : 0; } // tokens
    int64_t asked() const { return q ? q.shape[2] : 0; }    // query tokens
};

// winnow_cache_rows_desc, checked.
struct CacheRows {
    int64_t layer = 0, sequence = 0;
    Tensor tokens, k, v;
    bool has_v_in_k = false; // of exact rows: values are the elements of the keys from v_first on
    int64_t v_first = 0;
};

// A token that a KV head holds, as winnow_cache_tokens tells it.
struct HeldToken {
    int32_t id = 0; // its position, or cell
    float importance = 0;
    int32_t segment = 0;
};

// winnow_cache_state_desc, checked, of a call that saves: path is "" where write is given.
struct CacheSaving {
    int64_t sequence = -1; // -1: all
    std::string path{};
    std::function<int32_t(const void*, uint64_t)> write{};
};
// Of one that loads.
struct CacheLoading {
    int64_t sequence = -1;
    std::string path{};
    std::function<int32_t(void*, uint64_t)> read{};
    uint64_t size = 0; // of what read gives
};

// What a cache of this request uses when one sequence has so many tokens.
winnow_cache_stats estimate(const CacheRequest& request, int64_t tokens);

// winnow_cache_info without its memory.
struct Meaning {
    std::string policy, config, storage_config;
    bool evicts = false, keeps_importance = false;
    struct Resource {
        const char* name;
        std::string path; // "": the configuration names none
    };
    std::vector<Resource> resources; // that create needs
    Type k = Type::f16, v = Type::f16;
    int64_t sink = 0, residual = 0, cadence = 0, budget_tokens = 0;
    struct Segment {
        int64_t tokens = 0; // of budget_tokens
        Type k = Type::none, v = Type::none;
    };
    std::vector<Segment> segments; // the dense one first
};
// What the configuration of a request means, with or without the resources that it needs; without a profile as if the
// attention of all layers were alike.
Meaning meaning_of(CacheRequest request);

} // namespace winnow::cache
