// The sizes of a cache that follow from a configuration and a model's shape.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/plan/bytes.hpp"
#include "cache/plan/config.hpp"
#include "cache/plan/shape.hpp"

namespace winnow::cache {

// Where the small tensors of a layer lie in its one buffer; bytes. Absent ones have no size.
struct StateLayout {
    struct Range {
        uint64_t offset = 0, size = 0;
        friend bool operator==(const Range&, const Range&) = default;
    };
    Range head_state;     // I32 [kv_heads, 4]
    Range output_sum;     // F32 [kv_heads, v_head_size]
    Range k_mean, v_mean; // F32 [kv_heads, size]
    Range free_slots;     // I32 [kv_heads, most_free_listed]
    Range positions;      // I32 [cells]
    Range network;        // F32 [kv_heads, network_numbers]
    uint64_t size = 0;
    friend bool operator==(const StateLayout&, const StateLayout&) = default;
};

// Puts a part of so many bytes at `end`, and `end` behind it, at a multiple of 64 bytes.
void place_part(StateLayout::Range& part, uint64_t bytes, uint64_t& end);

// The most slots that an eviction pass lists, without a residual window.
int64_t most_free_listed(const Config& config);
StateLayout state_layout(const Config& config, const LayerShape& shape, int64_t cells, int64_t residual,
                         bool importance);

// The storage formats of a packed segment, or of some KV heads in it.
struct RowFormats {
    Type k = Type::f16, v = Type::f16;
    uint64_t heads = 0; // bit h for KV head h; 0: all of them
    int64_t count = 1;  // of heads
    bool has(int64_t head) const { return heads == 0 || (heads >> head & 1) != 0; }
    friend auto operator<=>(const RowFormats&, const RowFormats&) = default; // NOLINT(modernize-use-nullptr)
};

// The sizes of a cache.
struct Plan {
    int64_t tokens = 0;                // of each KV head, on average over the layers
    std::vector<int64_t> layer_tokens; // of each KV head of each layer
    int64_t sink = 0;
    int64_t residual = 0;
    int64_t cadence = 0;
    std::vector<std::vector<RowFormats>> formats; // of each layer's first packed segment
    std::vector<LowerTier> lower;                 // further packed segments, each with tokens
    Bytes bytes;                                  // of the whole cache
    uint64_t full_bytes = 0;                      // K and V of the whole context in f16, nothing else
};

// Under recall: the bytes of a layer's dense rows and state, signatures and hot slots. Layers have parts of a budget in
// bytes in proportion to what they have of the full cache.
uint64_t recall_budget(const Config& config, const Shape& shape, const LayerShape& layer);

// From how many tokens of a KV head on there is a residual window by default, and of how many rows; none where no
// context is long enough. It has to suit every layer.
struct LeastResidual {
    int64_t tokens = 0, rows = 0;
};
std::optional<LeastResidual> least_residual(const Config& config, const Shape& shape, bool importance);

// Throws Error (invalid argument) where the configuration does not fit the shape: a format the head size, the residual
// window or what the policy protects the budget, a profile the layers.
Plan plan(const Config& config, const Shape& shape, std::span<const LayerProfile> profile = {});

// What a policy is told of a layer of that plan.
LayerContext context_of(const Plan& plan, const Shape& shape, int64_t layer, double pressure = 0);

} // namespace winnow::cache
