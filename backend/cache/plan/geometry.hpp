// The sizes of a cache: what a request and its configuration say about every layer, before any token.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cache/plan/config.hpp"
#include "cache/plan/policy.hpp"
#include "cache/plan/recall_sizes.hpp"
#include "cache/request.hpp"

namespace winnow::cache {

class TokenIndex;

// The segments of a layer: the dense one, and packed ones, of which the first takes the rows that leave the residual
// window, and each further one those that go down from the one before.
enum class Part : uint8_t { dense, packed, second, third };

class Geometry {
public:
    // Throws Error where the configuration does not fit the request.
    Geometry(const CacheRequest& request, const Config& config);

    const CacheRequest& request() const { return request_; }
    int64_t layers() const { return static_cast<int64_t>(layers_.size()); }
    const LayerShape& shape(int64_t layer) const { return request_.shape.layer(layer); }
    int64_t context() const { return request_.shape.context; }
    const Config& config() const { return config_; }
    const Plan& plan() const { return plan_; }
    // As the configuration has them; reading it takes longer than a step may. Those of layers and heads without
    // formats of their own.
    Type k() const { return k_; }
    Type v() const { return v_; }
    Type k(Part part) const { return usual_formats_[static_cast<size_t>(part)].first; }
    Type v(Part part) const { return usual_formats_[static_cast<size_t>(part)].second; }
    // Those of a layer's segment: one pair, or several of some KV heads each.
    std::span<const RowFormats> formats(int64_t layer, Part part) const {
        return of(layer).formats[static_cast<size_t>(part)];
    }
    const RowFormats& formats_of_head(int64_t layer, Part part, int64_t head) const;
    // Whether some heads have a packed format there.
    bool has_packed_k(int64_t layer, Part part) const { return has_packed(layer, part, &RowFormats::k); }
    bool has_packed_v(int64_t layer, Part part) const { return has_packed(layer, part, &RowFormats::v); }
    // Neighbouring KV heads of a layer whose rows are alike in all segments.
    struct Heads {
        int64_t first = 0, count = 1;
    };
    std::span<const Heads> alike(int64_t layer) const { return of(layer).alike; }
    // Whether each of these attends by itself: all of them together have more segments than one attention takes.
    bool attends_by_heads(int64_t layer) const {
        return formats(layer, Part::packed).size() + plan_.lower.size() > most_tiers;
    }
    float v_threshold() const { return v_threshold_; } // of attention
    // All segments of the configuration, the dense one first, also where it has no slots; and the packed ones.
    std::span<const Part> parts() const { return std::span(every_part).first(1 + tiers_); }
    std::span<const Part> packed_parts() const { return parts().subspan(1); }
    bool has_lower() const { return tiers_ > 1; }
    Norm k_norm() const { return k_norm_; }
    Norm v_norm() const { return v_norm_; }
    bool has_cells() const { return request_.cells > 0; }
    bool keeps_importance() const { return plan_.bytes.importance > 0; }
    int64_t sink() const { return plan_.sink; }
    int64_t residual() const { return plan_.residual; }
    int64_t cadence() const { return plan_.cadence; }
    // Tokens for which an eviction pass leaves room: those until the next one that evicts, which is no other but where
    // recall keeps only so many.
    int64_t coming() const { return coming_; }
    // Whether recall keeps only so many of the newest tokens.
    bool has_cold_budget() const { return has_cold_budget_; }
    int64_t dense_slots() const { return plan_.sink + plan_.residual; }
    // Whether a layer's eviction pass is due before the next token where one comes at a time: the layers take turns.
    bool is_turn(int64_t layer, int64_t next) const { return next % cadence() == layer * cadence() / layers(); }
    // Rows that an eviction pass leaves in the residual window.
    int64_t keep() const { return plan_.residual > 0 ? plan_.residual - plan_.cadence : 0; }
    const Zeroing& zeroing() const { return zeroing_; }
    // The same of what has to be zeroed before a head's rows are packed: of the sides that have a packed format there.
    Zeroing zeroing_of_packed(int64_t layer, int64_t head) const;
    int64_t chunk() const; // the most tokens of one append and one attention

    // The policy's description of a layer under this memory pressure.
    Description describe(int64_t layer, double pressure) const;
    const Importance& importance(int64_t layer) const { return of(layer).importance; }
    // What those of a step of so many queries add: a single one may stand for others.
    Importance importance(int64_t layer, int64_t queries) const;
    // Whether they count, where the last one's is the token of this number. Steps of one query take turns, and layers
    // do, so that steps take equal time.
    bool counts(int64_t layer, int64_t queries, int64_t token) const;
    // The networks of its KV heads, by which the policy ranks; none under most.
    std::span<const float> network(int64_t layer) const;
    bool ranks_distance(int64_t layer) const { return of(layer).ranks_distance; }

    // Whether the layer's budget is no less than the most tokens that can be resident at a time.
    bool covers_all(int64_t layer) const { return of(layer).covers_all; }
    // Whether the layer ever evicts. A policy that begins before the budget is full does so even if it covers all.
    bool may_evict(int64_t layer) const;
    // The most slots that the packed segment of a layer ever has.
    int64_t most_packed(int64_t layer) const;
    // The most that it has while no token was removed or shifted: sinks' slots and residual window are full then.
    int64_t usual_packed(int64_t layer) const;
    // How many slots the packed segment has where a head may hold `resident` tokens outside the sinks' slots. `beside`:
    // as rows_beside has it. Memory grows in steps of 64 slots, or of a quarter of what there is.
    int64_t packed_slots(int64_t layer, int64_t resident, int64_t beside) const;
    // Rows that a whole context may need beside as many as it has tokens.
    int64_t rows_beside(const TokenIndex& index) const;
    // How many of so many packed slots are of one segment: those above it are filled first.
    int64_t slots_of(int64_t layer, Part part, int64_t packed) const;
    // How many slots it has once there are slots below it; more than any number for the last one.
    int64_t capacity(int64_t layer, Part part) const;

    const StateLayout& state(int64_t layer) const { return of(layer).state; }
    bool recalls() const { return page_slots() > 0; } // false: every query attends to all that is resident
    int64_t page_slots() const { return layers_.front().recall.page_slots; } // of recall
    const RecallSizes& recall(int64_t layer) const { return of(layer).recall; }
    // A number of four bytes for each slot of all KV heads.
    uint64_t column_bytes(int64_t layer, int64_t slots) const;
    // Keys and values of so many slots of a layer's segment, of all KV heads.
    uint64_t k_bytes(int64_t layer, Part part, int64_t slots) const {
        return side_bytes(layer, part, &RowFormats::k, shape(layer).head_size, slots);
    }
    uint64_t v_bytes(int64_t layer, Part part, int64_t slots) const {
        return side_bytes(layer, part, &RowFormats::v, shape(layer).v_head_size, slots);
    }
    // Scratch that all layers share, for the scores of one attention over so many slots or fewer, or the weights of a
    // step of one token.
    uint64_t scores_bytes(int64_t slots) const;
    // How many of a chunk's queries one attention has whose scores are kept: so many that they find room there.
    int64_t scored_queries(int64_t layer, int64_t slots, int64_t queries) const;
    uint64_t row_stats_bytes() const;
    uint64_t scratch_bytes(int64_t slots) const; // both; none where there are no slots
    // What the layer has that has most of it, where layers of one shape have as much.
    template <class BytesOf>
    uint64_t most_bytes(BytesOf bytes_of) const {
        uint64_t most = 0;
        for (const int64_t layer : firsts_) most = std::max<uint64_t>(most, bytes_of(layer));
        return most;
    }

    // Refuses anchors that would leave a head of a layer too little to evict. `elsewhere`: how many of the sinks and of
    // the newest tokens lie in the packed segment, while their own slots are empty or a removed token's.
    void check_anchors(int64_t sequence, int64_t layer, int64_t anchors, int64_t elsewhere) const;

private:
    [[noreturn]] void refuse_without_residual(const char* what) const;
    struct LayerSizes;
    const LayerSizes& of(int64_t layer) const { return layers_[static_cast<size_t>(layer)]; }
    static void check_query_heads(const LayerShape& shape);
    RecallSizes recall_of(int64_t layer) const;
    bool has_packed(int64_t layer, Part part, Type RowFormats::*side) const;
    uint64_t side_bytes(int64_t layer, Part part, Type RowFormats::*side, int64_t elements, int64_t slots) const;
    void set_formats(int64_t layer);
    void set_sizes();
    void set_zeroing();

    CacheRequest request_;
    Config config_;
    std::unique_ptr<Policy> policy_;
    Plan plan_;
    Type k_, v_;
    Norm k_norm_, v_norm_;
    float v_threshold_;
    static constexpr std::array every_part{Part::dense, Part::packed, Part::second, Part::third};
    size_t tiers_ = 1;                                                     // packed segments
    std::array<std::pair<Type, Type>, every_part.size()> usual_formats_{}; // of layers without formats of their own
    struct LayerSizes {
        std::array<std::vector<RowFormats>, every_part.size()> formats;
        std::vector<Heads> alike;
        std::array<int64_t, most_tiers> tier_slots; // where no sink is lost
        StateLayout state;
        RecallSizes recall;
        StateLayout::Range network; // in those of all layers
        Importance importance;
        bool ranks_distance = false, covers_all = false;
    };
    std::vector<LayerSizes> layers_;
    std::vector<int64_t> firsts_; // of each shape the first layer
    int64_t coming_ = 0, counted_every_ = 1;
    Zeroing zeroing_;
    bool has_cold_budget_ = false, evicts_ = false;
};

} // namespace winnow::cache
