// Sizes of segments and of what lies beside them.
#include "cache/plan/geometry.hpp"

#include <algorithm>
#include <limits>
#include <utility>

#include "cache/layer/token_index.hpp"
#include "cache/plan/codebooks.hpp"
#include "device/slots.hpp"

namespace winnow::cache {
namespace {

constexpr int64_t largest_chunk = 32;      // tokens
constexpr int64_t most_scores = 4ll << 20; // bytes, unless those of one query are more
constexpr int64_t chunk = 64;              // slots
constexpr int64_t growth = 4;              // a chunk is at least a part of what there is
constexpr int64_t no_limit = std::numeric_limits<int64_t>::max();

CacheRequest with_cells(CacheRequest request) {
    request.shape.cells = request.cells;
    return request;
}

int64_t chunks_for(int64_t slots) {
    int64_t taken = 0;
    while (taken < slots) taken += std::max(chunk, taken / growth / chunk * chunk);
    return taken;
}

[[noreturn]] void refuse_without_resource(const char* what, const char* resource) {
    refuse(std::string(what) + " needs the resource " + resource + ", and winnow_cache_desc.resources has none");
}

} // namespace

Geometry::Geometry(const CacheRequest& request, const Config& config)
    : request_(with_cells(request)), config_(config), policy_(make_policy(config)),
      plan_(cache::plan(config, request_.shape, request.profile)), k_(config.k()), v_(config.v()),
      k_norm_(config.k_norm()), v_norm_(config.v_norm()), v_threshold_(config.v_threshold()) {
    if ((config_.center() || config_.recalls()) && residual() == 0)
        refuse_without_residual(config_.recalls() ? ": recall packs whole pages from"
                                                  : ": center=on takes its means from");
    if (config_.policy().has_network && request_.network.empty() && !request_.is_described)
        refuse_without_resource(config_.policy().name, "network");
    if (config_.signature_kind() == SignatureKind::codes && !request_.codebooks && !request_.is_described)
        refuse_without_resource("signature=codes", "codebooks");
    tiers_ += plan_.lower.size();
    usual_formats_[0] = {dense_format(k_), dense_format(v_)};
    usual_formats_[1] = {k_, v_};
    for (size_t i = 0; i < plan_.lower.size(); ++i) usual_formats_[2 + i] = {plan_.lower[i].k, plan_.lower[i].v};
    layers_.resize(request_.shape.layers.size());
    for (int64_t layer = 0; layer < layers(); ++layer) set_formats(layer);
    set_zeroing();
    has_cold_budget_ = config_.has_cold_budget();
    evicts_ = config_.policy().evicts && (!config_.recalls() || has_cold_budget_);
    set_sizes();
    coming_ = describe(0, 0).cadence;
    if (config_.has("every")) counted_every_ = config_.count("every");
    firsts_ = request_.shape.unlike_layers();
}

void Geometry::set_sizes() {
    int64_t all = context();
    if (has_cells()) {
        // Cells that are used again leave gaps among sinks and residual window, and bytes for those there have to be.
        const bool is_strict = config_.budget().unit == Amount::Unit::bytes;
        all = request_.cells + (is_strict ? dense_slots() + (residual() == 0 ? cadence() : 0) : 0);
    }
    uint64_t networks = 0, codebooks = 0; // bytes of the layers before
    const auto next = [](uint64_t& end, uint64_t size) {
        return StateLayout::Range{std::exchange(end, end + size), size};
    };
    for (int64_t layer = 0; layer < layers(); ++layer) {
        LayerSizes& its = layers_[static_cast<size_t>(layer)];
        const int64_t tokens = plan_.layer_tokens[static_cast<size_t>(layer)];
        its.tier_slots = divide(plan_.lower, tokens, dense_slots());
        its.covers_all = !evicts_ || tokens >= all;
        its.state = state_layout(config_, shape(layer), request_.cells, residual(), keeps_importance());
        its.network = next(networks, its.state.network.size);
        if (config_.recalls()) its.recall = recall_of(layer);
        if (config_.signature_kind() == SignatureKind::codes)
            its.recall.codebooks = next(codebooks, codebook_bytes(shape(layer)));
        const Description description = describe(layer, 0);
        its.importance = description.importance;
        its.ranks_distance = description.ranking == Ranking::importance_value_distance;
    }
}

// A pick has the sums of each query head's elements before it, in memory of a work-item: 4 MiB of them.
void Geometry::check_query_heads(const LayerShape& shape) {
    constexpr int64_t most_elements = 1 << 18;
    const int64_t group = shape.q_heads / shape.kv_heads;
    if (group * shape.head_size <= most_elements) return;
    refuse("recall with " + std::to_string(group) + " query heads for a KV head, of " +
           std::to_string(shape.head_size) + " elements: expected at most " + std::to_string(most_elements) +
           " elements in all");
}

RecallSizes Geometry::recall_of(int64_t layer) const {
    const LayerShape& its = shape(layer);
    check_query_heads(its);
    const auto slot_bytes = [&](Type k, Type v) {
        return static_cast<uint64_t>(its.kv_heads) *
               (row_bytes(k, its.head_size) + row_bytes(v, its.v_head_size) + row_bytes(Type::i32, 1));
    };
    const auto dense = slot_bytes(dense_format(k_), dense_format(v_)) * static_cast<uint64_t>(dense_slots());
    return recall_sizes(config_, its,
                        {.budget_bytes = recall_budget(config_, request_.shape, its),
                         .fixed_bytes = dense + state(layer).size,
                         .hot_slot_bytes = slot_bytes(k_, v_),
                         .cold_slots = most_packed(layer)});
}

void Geometry::set_formats(int64_t layer) {
    const std::vector<RowFormats>& packed = plan_.formats[static_cast<size_t>(layer)];
    const int64_t heads = shape(layer).kv_heads;
    LayerSizes& its = layers_[static_cast<size_t>(layer)];
    for (size_t part = 0; part < its.formats.size(); ++part)
        its.formats[part] = {{usual_formats_[part].first, usual_formats_[part].second, 0, heads}};
    its.formats[1] = packed;
    if (packed.size() == 1) {
        its.formats[0][0].k = dense_format(packed[0].k);
        its.formats[0][0].v = dense_format(packed[0].v);
        its.alike = {{0, heads}};
        return;
    }
    if (residual() == 0) refuse_without_residual(": KV heads with formats of their own take their rows from");
    for (int64_t head = 0; head < heads; ++head)
        if (head > 0 && &formats_of_head(layer, Part::packed, head) == &formats_of_head(layer, Part::packed, head - 1))
            ++its.alike.back().count;
        else
            its.alike.push_back({head, 1});
}

const RowFormats& Geometry::formats_of_head(int64_t layer, Part part, int64_t head) const {
    const std::span<const RowFormats> all = formats(layer, part);
    return *std::find_if(all.begin(), all.end(),
                         [&](const RowFormats& each) { return each.heads == 0 || (each.heads >> head & 1) != 0; });
}

bool Geometry::has_packed(int64_t layer, Part part, Type RowFormats::*side) const {
    const std::span<const RowFormats> all = formats(layer, part);
    return std::any_of(all.begin(), all.end(), [&](const RowFormats& each) { return is_packed(each.*side); });
}

void Geometry::set_zeroing() {
    zeroing_ = config_.zeroing();
    for (int64_t layer = 0; layer < layers() && residual() == 0; ++layer)
        if ((zeroing_.k > 0 && has_packed_k(layer, Part::packed)) ||
            (zeroing_.v > 0 && has_packed_v(layer, Part::packed)))
            refuse_without_residual(": elastic= zeroes rows before they are packed, in");
}

Zeroing Geometry::zeroing_of_packed(int64_t layer, int64_t head) const {
    Zeroing its = zeroing_;
    const auto is_any = [&](Type RowFormats::*side) {
        return std::any_of(packed_parts().begin(), packed_parts().end(),
                           [&](Part part) { return is_packed(formats_of_head(layer, part, head).*side); });
    };
    if (!is_any(&RowFormats::k)) its.k = 0;
    if (!is_any(&RowFormats::v)) its.v = 0;
    return its;
}

std::span<const float> Geometry::network(int64_t layer) const {
    if (request_.network.empty()) return {};
    const StateLayout::Range& part = of(layer).network;
    return std::span(request_.network).subspan(part.offset / sizeof(float), part.size / sizeof(float));
}

void Geometry::refuse_without_residual(const char* what) const {
    std::string text = std::string(config_.policy().name) + what + " a residual window, and ";
    if (config_.residual()) refuse(text + "residual=0 says that there is none");
    text += std::to_string(plan_.tokens) + " tokens of a KV head have none unless residual= says how many rows";
    if (const std::optional<LeastResidual> least = least_residual(config_, request_.shape, keeps_importance()))
        text += ": there are " + std::to_string(least->rows) + " from " + std::to_string(least->tokens) + " tokens on";
    refuse(text);
}

int64_t Geometry::chunk() const { return std::min(largest_chunk, recalls() ? residual() : cadence()); }

Description Geometry::describe(int64_t layer, double pressure) const {
    return policy_->describe(context_of(plan_, request_.shape, layer, pressure));
}

Importance Geometry::importance(int64_t layer, int64_t queries) const {
    Importance importance = this->importance(layer);
    if (queries == 1) importance.stands_for = counted_every_;
    return importance;
}

bool Geometry::counts(int64_t layer, int64_t queries, int64_t token) const {
    if (importance(layer).statistic == Statistic::none) return false;
    return queries > 1 || (token + layer) % counted_every_ == 0;
}

bool Geometry::may_evict(int64_t layer) const {
    if (!evicts_) return false;
    const Share trigger = describe(layer, 0).trigger;
    return trigger.part < trigger.whole || !covers_all(layer);
}

int64_t Geometry::most_packed(int64_t layer) const {
    if (!covers_all(layer)) return plan_.layer_tokens[static_cast<size_t>(layer)] - dense_slots();
    if (!has_cells()) return context();
    return request_.cells + (residual() == 0 ? cadence() : 0);
}

int64_t Geometry::usual_packed(int64_t layer) const {
    return covers_all(layer) && !has_cells() ? context() - dense_slots() : most_packed(layer);
}

int64_t Geometry::rows_beside(const TokenIndex& index) const { return index.rows_beside(residual(), context()); }

int64_t Geometry::packed_slots(int64_t layer, int64_t resident, int64_t beside) const {
    // Without a residual window the slots of the coming tokens are free-listed before they come.
    int64_t needed = residual() > 0 ? resident - keep() : resident > 0 ? resident + cadence() - 1 : 0;
    if (needed <= 0) return 0;
    const int64_t usual = std::min(usual_packed(layer) + beside, most_packed(layer));
    // The oldest go before all slots are taken.
    if (has_cold_budget_ && !covers_all(layer) &&
        sink() + resident + coming_ > plan_.layer_tokens[static_cast<size_t>(layer)])
        return usual;
    if (resident <= usual + residual()) needed = std::min(needed, usual);
    return std::min(chunks_for(needed), needed <= usual ? usual : most_packed(layer));
}

int64_t Geometry::capacity(int64_t layer, Part part) const {
    const auto tier = static_cast<size_t>(part) - 1;
    return tier + 1 == tiers_ ? no_limit : of(layer).tier_slots[tier];
}

int64_t Geometry::slots_of(int64_t layer, Part part, int64_t packed) const {
    for (const Part each : packed_parts()) {
        const int64_t slots = std::min(packed, capacity(layer, each));
        if (each == part) return slots;
        packed -= slots;
    }
    return 0;
}

uint64_t Geometry::column_bytes(int64_t layer, int64_t slots) const {
    return 4 * static_cast<uint64_t>(shape(layer).kv_heads * slots);
}

uint64_t Geometry::side_bytes(int64_t layer, Part part, Type RowFormats::*side, int64_t elements, int64_t slots) const {
    uint64_t bytes = 0;
    for (const RowFormats& each : formats(layer, part))
        bytes += row_bytes(each.*side, elements) * static_cast<uint64_t>(each.count * slots);
    return bytes;
}

uint64_t Geometry::scores_bytes(int64_t slots) const {
    // Each packed segment's slots are rounded up.
    const int64_t rounded = static_cast<int64_t>(tiers_ - 1) * fused_weight_slots,
                  whole_slots = whole_weight_slots(dense_slots()) + whole_weight_slots(slots - dense_slots()) + rounded;
    return most_bytes([&](int64_t layer) {
        const LayerShape& its = shape(layer);
        const int64_t scores = its.q_heads * slots, most = std::max(most_scores / 4, scores),
                      weights = fused_weight_floats(its.q_heads, its.kv_heads, whole_slots);
        return 4 * static_cast<uint64_t>(std::max(std::min(scores * chunk(), most), weights));
    });
}

int64_t Geometry::scored_queries(int64_t layer, int64_t slots, int64_t queries) const {
    while (queries > 1 && 4 * shape(layer).q_heads * queries * slots > most_scores) queries = (queries + 1) / 2;
    return queries;
}

uint64_t Geometry::row_stats_bytes() const {
    return most_bytes([&](int64_t layer) { return 8 * static_cast<uint64_t>(shape(layer).q_heads * chunk()); });
}

uint64_t Geometry::scratch_bytes(int64_t slots) const {
    return slots > 0 ? scores_bytes(slots) + row_stats_bytes() : 0;
}

void Geometry::check_anchors(int64_t sequence, int64_t layer, int64_t anchors, int64_t elsewhere) const {
    if (covers_all(layer)) return;
    const Description description = describe(layer, 0);
    const int64_t least =
        description.sink + std::max(description.recent, description.grace) + anchors + description.cadence + elsewhere;
    if (least <= description.budget) return;
    refuse("sequence " + std::to_string(sequence) + " would have " + std::to_string(anchors) +
           " anchors, expected at most " + std::to_string(std::max<int64_t>(description.budget - least + anchors, 0)) +
           " beside sinks, newest and coming tokens" +
           (elsewhere > 0 ? " (" + std::to_string(elsewhere) + " of which lie in the packed segment)" : "") +
           " in the " + std::to_string(description.budget) + " tokens of layer " + std::to_string(layer));
}

} // namespace winnow::cache
