// A cache as a test makes it, and what follows from its configuration: which tokens an eviction pass evicts, in
// numbers. Written from docs/policies.md, not from a backend.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "winnow_cache.h"

namespace winnow::conformance {

enum class Policy {
    none,
    window,
    random,
    scissorhands,
    tova,
    external,
    moe,
    learned,
    h2o,
    hierarchical,
    adaptive_budget,
    winnow,
    mixed,
    decay
};
enum class Statistic { none, score_magnitude, probability, probability_squared, above_mean };
enum class Ranking { age, importance, value_distance, random, prediction };

struct Part {
    int64_t part = 0, whole = 1;
    int64_t floor_of(int64_t all) const { return all * part / whole; }
    int64_t ceil_of(int64_t all) const { return (all * part + whole - 1) / whole; }
};

// A packed segment below the first.
struct LowerSegment {
    Part share{}; // of the budget's tokens
    uint32_t k_type = WINNOW_TYPE_F16, v_type = WINNOW_TYPE_F16;
    int64_t after = 0; // under decay, in the place of a share: tokens that a head holds before these
    int number = 2;    // under decay: of its keys
};

// Layers, or some KV heads of them, whose first packed segment has formats of its own: fine= or coarse=.
struct LayersOfFormats {
    std::string key;
    std::vector<int64_t> layers;         // ascending, all heads of each
    std::map<int64_t, uint64_t> heads{}; // of further layers: bit h for KV head h
    uint32_t k_type = WINNOW_TYPE_F16, v_type = WINNOW_TYPE_F16;
};

// Keys of decay. A token of age a weighs exp(-lambda a).
struct Ages {
    std::string mode = "hybrid";
    int64_t window = 4096;
    double lambda = 2, weight2 = .5, weight3 = .2, eviction_threshold = .05;
};

// elastic=on.
struct ZeroingSetup {
    double k = .35, v = .17; // scales of the thresholds
    int64_t sink = 64, every = 64, after = 128;
};

// recall=: to what is resident it is as policy none, or, with budget as cold=, as a window that evicts many tokens at
// once.
struct Recall {
    std::string cold_tier = "host";                            // that, or a folder
    bool has_codes = false;                                    // signatures are of codes
    std::shared_ptr<const std::vector<std::byte>> codebooks{}; // by which; none: by random ones
};

// Keys that one policy alone has, with its own values.
struct H2oKeys {
    bool sum = false;
    std::optional<int64_t> heavy{}; // tokens
};
struct ScissorhandsKeys {
    int64_t history = 400;
    Part drop = {1, 2};
};
struct MoeKeys { // and decay, where experts rank
    int64_t experts = 8;
    Part inactive = {1, 4};
    bool evict_inactive = false;
};
struct HierarchicalKeys {
    Part trigger = {7, 10};
    int64_t first = 64;
    std::optional<double> theta_shallow{};
    double theta_middle = .15, theta_deep = .25;
    std::optional<int64_t> recent_shallow{}, recent_middle{}, recent_deep{};
    int64_t batch = 16;
};
struct AdaptiveBudgetKeys {
    Policy selector = Policy::h2o; // the policy that selects, with its own defaults
    std::vector<double> profile{}; // 3 numbers a layer
};

// Of one layer.
struct LayerShape {
    int64_t kv_heads = 2, group = 2, head_size = 64, v_head_size = 64;
    int64_t q_heads() const { return kv_heads * group; }
};

// A case names what it is about, in this order: CacheSetup{.policy = Policy::h2o, .budget = 80, .residual = 0}.
struct CacheSetup {
    Policy policy = Policy::window;
    int64_t layers = 2, kv_heads = 2, group = 2, head_size = 64, v_head_size = 64;
    std::vector<LayerShape> shapes{}; // of each layer, where they are unlike, in the place of those four
    int64_t context = 1024, sequences = 1, cells = 0;
    int64_t budget = 128;           // tokens of each KV head; 0: the whole context
    std::string budget_text{};      // in its place: bytes, for which nothing here knows the tokens
    std::optional<Recall> recall{}; // with budget_text
    int64_t sink = 4, residual = 48;
    std::optional<int64_t> cadence{}; // none: what docs/policies.md makes of residual window and budget
    uint32_t type = WINNOW_TYPE_F32;  // of k, v and q as the host hands them over, and of out

    uint32_t k_type = WINNOW_TYPE_F16, v_type = WINNOW_TYPE_F16;
    uint32_t k_norm = WINNOW_NORM_CORRECTED, v_norm = WINNOW_NORM_CORRECTED;
    bool center = false;
    // Of the dense rows, where k_type and v_type are a head's own and do not say it.
    std::optional<uint32_t> dense_k_type{}, dense_v_type{};
    std::vector<LowerSegment> lower{};          // none to two
    std::vector<LayersOfFormats> own_formats{}; // none to two
    double sparse_v = 0;
    std::optional<ZeroingSetup> zeroing{};
    bool is_zeroing_changed = false; // set_config begins it, sets it otherwise and ends it

    // Keys that several policies have, where they differ from the policy's own values.
    std::optional<Statistic> statistic{};
    int64_t grace = 8;
    int64_t every = 1;               // winnow, h2o: of steps of one query, one of so many counts
    std::optional<double> decay{};   // h2o's alpha, winnow's decay, 1 - hierarchical's alpha
    std::optional<int64_t> recent{}; // tokens
    int64_t seed = 0;                // random
    H2oKeys h2o{};
    ScissorhandsKeys scissorhands{};
    MoeKeys moe{};
    HierarchicalKeys hierarchical{};
    AdaptiveBudgetKeys adaptive_budget{};
    Ages ages{};                       // decay
    bool is_ranked_by_experts = false; // decay

    // Under decay: lower becomes the packed segments that ages lead to. After each change of what they depend on.
    void set_segments_by_age();

    std::string config() const;
    int64_t q_heads() const { return kv_heads * group; } // of layers that are alike
    LayerShape shape(int64_t layer) const {
        return shapes.empty() ? LayerShape{kv_heads, group, head_size, v_head_size}
                              : shapes[static_cast<size_t>(layer)];
    }
    CacheSetup with_all_as(int64_t layer) const; // all layers have the shape of this one
    int64_t heads_before(int64_t layer) const;   // KV heads of the layers before it
    int64_t tokens() const;                      // on average over layers
    int64_t cadence_tokens() const;
    bool has_cold_budget() const { return recall && policy == Policy::window; }
    int64_t coming() const;                                      // tokens for which an eviction pass leaves room
    int64_t keep() const { return residual - cadence_tokens(); } // residual rows that stay at an eviction pass
    int64_t chunk() const;                                       // most tokens of a chunk
    std::vector<int64_t> layer_tokens() const;                   // of each KV head of each layer
    // How many slots the packed segments of a layer have, each, once it is full; the last may have more.
    std::vector<int64_t> packed_slots(int64_t layer) const;
    bool has_room_in_each() const;                              // what an eviction pass moves fits each of them
    std::vector<int64_t> packed_slots_of(int64_t tokens) const; // of a layer of so many tokens
    bool has_room_in_each(const std::vector<int64_t>& packed_slots) const; // of a layer
    // With the shape of a layer, and the formats that a KV head of it has in the first packed segment as k and v; and
    // those of all heads.
    CacheSetup of_head(int64_t layer, int64_t head) const;
    std::vector<CacheSetup> of_heads(int64_t layer) const;
    bool has_formats_by_head() const;          // in some layer
    CacheSetup of_segment(int64_t tier) const; // with the formats of packed segment `tier`, from 1 on, as k and v
    uint32_t k_type_of(int64_t segment) const; // of a segment, the dense one being 0
    uint32_t v_type_of(int64_t segment) const;
    bool has_zeroable_rows() const;       // of each side that is zeroed: else it is refused
    bool covers_all(int64_t layer) const; // the layer's budget holds all that can come
    bool is_told() const;                 // importances are the host's alone: attention adds nothing
    bool has_inactive_experts() const;    // in what the host tells
    bool keeps_importance() const;        // in any layer
};

// The rules of a layer's eviction passes.
struct Rules {
    Statistic statistic = Statistic::none;
    bool is_sum = false;
    double decay = 0;
    int64_t every = 1;
    Ranking ranking = Ranking::age;
    uint64_t seed = 0;
    std::vector<double> network; // of the layer's KV heads, one after another: learned
    int64_t sink = 0, recent = 0, grace = 0, context = 0, budget = 0, target = 0, most = 0;
    Part trigger = {1, 1}, most_share = {1, 1}, from = {0, 1}, until = {1, 1};
    int64_t first = 0;
    std::optional<double> threshold;
    double quantile = .99;
    bool moves_by_age = false; // from the first packed segment down

    // Whether a step's queries count in the importance of a layer, but for those of drafts, where the last one's token
    // has this position: steps of one query take turns.
    bool counts(int64_t layer, int64_t queries, int64_t last) const {
        return queries > 1 || (last + layer) % every == 0;
    }
};

Rules rules_of(const CacheSetup& setup, int64_t layer, double pressure);

const char* policy_name(Policy policy);
inline constexpr int64_t network_numbers = 32; // of a KV head: 8 hidden units
// The networks that every cache with so many KV heads in all layers is made with; they stay.
const std::vector<double>& networks_of(const CacheSetup& setup);
// What the network of a KV head says of a token: the sum of its terms, and of their sizes.
struct Prediction {
    double value = 0, size = 0;
};
Prediction prediction_of(const double* network, double importance, int64_t queries_seen);
// The rank of a position under `random`.
int64_t drawn_rank(uint64_t seed, int64_t head, int64_t position);

// The format of the dense rows beside a packed segment.
uint32_t dense_type(uint32_t type);

} // namespace winnow::conformance
