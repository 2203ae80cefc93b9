// What a configuration costs and holds, in exact integers: bytes of so many tokens, tokens of so many bytes, and the
// sizes of a cache that follow from a configuration and a model's shape.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "cache/plan/config.hpp"

namespace winnow::cache {

struct Shape {
    int64_t layers = 1;
    int64_t kv_heads = 1;
    int64_t head_size = 1;   // of keys
    int64_t v_head_size = 1; // of values
    int64_t context = 1;     // tokens
    int64_t cells = 0;       // of a host that names its own
};

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
StateLayout state_layout(const Config& config, const Shape& shape, int64_t residual, bool importance);

// How one KV head of one layer stores its tokens.
struct Layout {
    Type k = Type::f16, v = Type::f16;
    int64_t head_size = 1, v_head_size = 1;
    int64_t dense_rows = 0;         // sinks and residual window
    bool importance = false;        // one f32 for each slot
    bool center = false;            // means of K and V in f32
    uint64_t state = 0;             // bytes of what else there is beside the rows
    std::vector<LowerTier> lower{}; // further packed segments
    // Formats of the dense rows, where they do not follow from k and v.
    std::optional<std::pair<Type, Type>> dense{};
};

inline constexpr size_t most_tiers = 3; // packed segments

// How the tokens of a head that are not in dense rows are divided among its packed segments.
std::array<int64_t, most_tiers> divide(const std::vector<LowerTier>& lower, int64_t tokens, int64_t dense_rows);

Type dense_format(Type format); // of the dense rows beside it: f16, or what is not packed itself

// Bytes by part. Rows include all scales and norms.
struct Bytes {
    uint64_t k = 0, v = 0;             // packed segments
    uint64_t dense_k = 0, dense_v = 0; // sinks and residual window, all of their rows
    uint64_t slot_map = 0;             // an i32 for each slot: its position
    uint64_t importance = 0;
    uint64_t means = 0;
    uint64_t state = 0; // counts, sums, and what cells need
    uint64_t total() const { return k + v + dense_k + dense_v + slot_map + importance + means + state; }
    friend bool operator==(const Bytes&, const Bytes&) = default;
};

// The bytes of one KV head of one layer that holds up to `tokens` tokens.
Bytes bytes_of(const Layout& layout, int64_t tokens);
// So many KV heads that store alike.
struct HeadsOf {
    Layout layout;
    int64_t count = 1;
};
// The most tokens, at most `limit`, of which these KV heads, each with so many, have no more than `bytes` together; 0
// where not even one fits. Where there are several packed segments, one token more may take fewer bytes, as it changes
// how all are divided: then no fewer than these fit, and one more does not.
int64_t tokens_in(std::span<const HeadsOf> heads, uint64_t bytes, int64_t limit);

// The storage formats of a packed segment, or of some KV heads in it.
struct RowFormats {
    Type k = Type::f16, v = Type::f16;
    uint64_t heads = 0; // bit h for KV head h; 0: all of them
    int64_t count = 1;  // of heads
    bool has(int64_t head) const { return heads == 0 || (heads >> head & 1) != 0; }
    friend bool operator==(const RowFormats&, const RowFormats&) = default;
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

// Under recall: the bytes of a layer's dense rows and state, signatures and hot slots.
uint64_t recall_budget(const Config& config, const Shape& shape);

// From how many tokens of a KV head on there is a residual window by default, and of how many rows; none where no
// context is long enough.
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
