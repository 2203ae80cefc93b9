// Stats, positions and importance; what a cache is going to use, and what its configuration means.
#include "cache/calls/inspect.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <utility>

#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {
namespace {

uint64_t unsigned_of(int64_t value) { return static_cast<uint64_t>(value); }

using PackedSlots = std::array<int64_t, most_tiers>; // of each packed segment

// Those of a layer that has so many of them together.
PackedSlots divided(const Geometry& geometry, int64_t layer, int64_t packed) {
    PackedSlots slots{};
    for (size_t tier = 0; tier < geometry.packed_parts().size(); ++tier)
        slots[tier] = geometry.slots_of(layer, geometry.packed_parts()[tier], packed);
    return slots;
}

// Adds the bytes of a layer with so many slots.
void add_layer(const Geometry& geometry, int64_t layer, int64_t dense, PackedSlots slots, winnow_cache_stats& out) {
    if (const RecallSizes& recall = geometry.recall(layer)) {
        out.cold_bytes += bytes_of(geometry, layer, Part::packed, slots[0]);
        if (geometry.config().recall_folder()) out.cold_bytes -= geometry.column_bytes(layer, slots[0]);
        out.signature_bytes += recall.index_bytes;
        slots[0] = recall.hot_slots();
    }
    int64_t packed = 0;
    for (size_t tier = 0; tier < geometry.packed_parts().size(); ++tier) {
        const Part part = geometry.packed_parts()[tier];
        out.k_bytes += geometry.k_bytes(layer, part, slots[tier]);
        out.v_bytes += geometry.v_bytes(layer, part, slots[tier]);
        packed += slots[tier];
    }
    out.dense_k_bytes += geometry.k_bytes(layer, Part::dense, dense);
    out.dense_v_bytes += geometry.v_bytes(layer, Part::dense, dense);
    out.slot_map_bytes += geometry.column_bytes(layer, dense + packed);
    if (geometry.keeps_importance()) out.importance_bytes += geometry.column_bytes(layer, dense + packed);
    out.state_bytes += geometry.state(layer).size;
}

void add_up(winnow_cache_stats& out) {
    out.bytes = out.k_bytes + out.v_bytes + out.dense_k_bytes + out.dense_v_bytes + out.slot_map_bytes +
                out.importance_bytes + out.state_bytes + out.signature_bytes;
}

uint64_t budget_bytes(const Geometry& geometry) {
    winnow_cache_stats whole{};
    for (int64_t layer = 0; layer < geometry.layers(); ++layer)
        add_layer(geometry, layer, geometry.dense_slots(), divided(geometry, layer, geometry.usual_packed(layer)),
                  whole);
    add_up(whole);
    return whole.bytes;
}

uint64_t original_bytes(const Geometry& geometry, int64_t layer, int64_t tokens) {
    const LayerShape& shape = geometry.shape(layer);
    return 2 * unsigned_of(tokens * shape.kv_heads * (shape.head_size + shape.v_head_size));
}

void add_sequence(const Geometry& geometry, const Sequence& sequence, winnow_cache_stats& out) {
    int64_t longest = 0;
    for (const Layer& layer : sequence.layers) {
        longest = std::max(longest, layer.index.tokens());
        out.original_bytes += original_bytes(geometry, layer.number, layer.index.tokens());
        if (!layer.state) continue;
        add_layer(geometry, layer.number, layer.dense.slots,
                  {layer.packed.slots, layer.lower[0].slots, layer.lower[1].slots}, out);
        for (const HeadState& head : layer.read_head_state(geometry)) {
            out.evictions += unsigned_of(head.evicted);
            out.shortfall += unsigned_of(head.shortfall);
        }
        const PickCounts picks = pick_counts(geometry, layer);
        out.picks += picks.picked;
        out.misses += picks.missed;
        if (layer.cold.region) out.disk_bytes += layer.cold.region->reserved();
        out.bytes_read += layer.cold.bytes_read;
        out.wait_ns += layer.cold.wait_ns;
        for (const Part part : geometry.parts()) {
            const bool is_cold = part == Part::packed && geometry.recalls();
            const std::vector<int32_t> map = layer.map_of(geometry, is_cold ? layer.hot : layer.rows(part));
            out.resident_slots +=
                unsigned_of(std::count_if(map.begin(), map.end(), [](int32_t entry) { return entry >= 0; }));
        }
    }
    out.tokens += unsigned_of(longest);
}

// The memory of a sequence that is appended a token at a time, to one layer after another.
class Growing {
public:
    Growing(const Geometry& geometry, int64_t tokens)
        : geometry_(geometry), packed_(static_cast<size_t>(geometry.layers()), 0) {
        if (geometry.config().recall_folder())
            for (int64_t layer = 0; layer < geometry.layers(); ++layer) find_centers(layer, tokens);
        for (int64_t length = 1; length <= tokens; length = next_change(length, tokens))
            for (int64_t layer = 0; layer < geometry.layers(); ++layer) {
                grow(layer, length);
                if (const auto rows = centers_.find({length, layer}); rows != centers_.end()) sign(layer, rows->second);
            }
        evict_oldest(tokens);
    }
    int64_t packed(int64_t layer) const { return packed_[static_cast<size_t>(layer)]; }
    uint64_t scratch_bytes() const { return geometry_.scratch_bytes(scratch_) + cold_scratch_bytes(geometry_, cold_); }
    uint64_t peak_bytes() const { return peak_; }

private:
    int64_t packed_of(int64_t layer, int64_t length) const {
        return geometry_.packed_slots(layer, std::max<int64_t>(length - geometry_.sink(), 0), 0);
    }

    // The next length at which a layer takes memory.
    int64_t next_change(int64_t length, int64_t tokens) const {
        int64_t next = tokens + 1;
        for (int64_t layer = 0; layer < geometry_.layers(); ++layer) {
            int64_t same = length, other = next; // other: more memory, or beyond what matters
            while (other - same > 1) {
                const int64_t middle = same + (other - same) / 2;
                (packed_of(layer, middle) == packed(layer) ? same : other) = middle;
            }
            next = other;
        }
        const auto center = centers_.lower_bound({length + 1, 0});
        return center == centers_.end() ? next : std::min(next, center->first.first);
    }

    // The lengths at which a query signs all pages by another center, as eviction passes pack rows until the oldest
    // tokens have to go.
    void find_centers(int64_t layer, int64_t tokens) {
        const int64_t most = geometry_.most_packed(layer), end = std::min(tokens, tokens_before_evictions(layer));
        int64_t newest = 0, in_front = 0, centered = 0;
        for (int64_t length = geometry_.sink() + 1; length <= end && in_front < most; ++length) {
            const bool turn = geometry_.is_turn(layer, length - 1);
            if (newest == geometry_.residual() || (turn && newest > geometry_.keep())) {
                const int64_t leaving = std::min(newest - geometry_.keep(), most - in_front);
                in_front += leaving;
                newest -= leaving;
            }
            ++newest;
            if (const int64_t rows = geometry_.recall(layer).center_rows(in_front); rows != centered) {
                centered = rows;
                centers_[{length, layer}] = in_front;
            }
        }
    }

    // Rows of the file, stretch by stretch.
    void sign(int64_t layer, int64_t rows) {
        const int64_t slots = std::min(geometry_.recall(layer).signed_slots, rows);
        peak_ = std::max(peak_, bytes_ + scratch_bytes() + bytes_of(geometry_, layer, Part::packed, slots) +
                                    cold_file_bytes(geometry_, layer, slots));
    }

    void grow(int64_t layer, int64_t length) {
        const uint64_t before = bytes_ + scratch_bytes();
        uint64_t taken = 0, given = 0;
        if (length == 1)
            taken += bytes_of(geometry_, layer, Part::dense, geometry_.dense_slots()) + geometry_.state(layer).size +
                     recall_bytes(geometry_, layer);
        int64_t& slots = packed_[static_cast<size_t>(layer)];
        const int64_t packed = packed_of(layer, length);
        for (const Part part : geometry_.packed_parts()) {
            const int64_t its = geometry_.slots_of(layer, part, packed), now = geometry_.slots_of(layer, part, slots);
            if (its <= now) continue;
            taken += counted_bytes_of(geometry_, layer, part, its);
            given += counted_bytes_of(geometry_, layer, part, now);
        }
        slots = std::max(slots, packed);
        bytes_ += taken - given;
        if (packed > cold_) {
            taken += cold_scratch_bytes(geometry_, packed) - cold_scratch_bytes(geometry_, cold_);
            if (geometry_.config().recall_folder())
                taken += 4 * static_cast<uint64_t>(cold_); // until the larger map is there
            cold_ = packed;
        }
        const int64_t scored = geometry_.dense_slots() + packed;
        if (geometry_.importance(layer).statistic != Statistic::none && scored > scratch_) {
            scratch_ = scored;
            taken += scratch_bytes();
        }
        if (taken > 0) peak_ = std::max(peak_, before + taken);
    }

    // How many tokens come before the oldest ones have to go.
    int64_t tokens_before_evictions(int64_t layer) const {
        if (!geometry_.has_cold_budget() || geometry_.covers_all(layer)) return std::numeric_limits<int64_t>::max();
        int64_t tokens = geometry_.plan().layer_tokens[static_cast<size_t>(layer)] - geometry_.coming() + 1;
        while (!geometry_.is_turn(layer, tokens)) ++tokens;
        return tokens;
    }

    // What it takes to bring rows together once the oldest tokens have gone, when all other memory is there.
    void evict_oldest(int64_t tokens) {
        if (!geometry_.has_cold_budget()) return;
        for (int64_t layer = 0; layer < geometry_.layers(); ++layer) {
            if (tokens_before_evictions(layer) >= tokens) continue;
            uint64_t taken = 4 * unsigned_of(geometry_.request().cells);
            if (geometry_.config().recall_folder()) taken += bytes_of(geometry_, layer, Part::packed, packed(layer));
            peak_ = std::max(peak_, bytes_ + scratch_bytes() + taken);
        }
    }

    const Geometry& geometry_;
    std::map<std::pair<int64_t, int64_t>, int64_t> centers_; // of (length, layer) the packed rows
    std::vector<int64_t> packed_;                            // slots
    int64_t scratch_ = 0, cold_ = 0;                         // slots
    uint64_t bytes_ = 0, peak_ = 0;
};

} // namespace

void stats(const CacheState& cache, winnow_cache_stats& out) {
    const Geometry& geometry = *cache.geometry;
    winnow_cache_stats sum{};
    sum.struct_size = out.struct_size;
    sum.evictions = cache.evictions;
    sum.picks = cache.picks.picked;
    sum.misses = cache.picks.missed;
    for (const Sequence& sequence : cache.sequences) add_sequence(geometry, sequence, sum);
    add_up(sum);
    sum.scratch_bytes = cache.bytes() - sum.bytes;
    sum.peak_bytes = cache.peak_bytes;
    sum.budget_bytes = budget_bytes(geometry);
    sum.eviction_passes = cache.eviction_passes;
    sum.steps = cache.steps;
    if (cache.codebooks) sum.codebook_bytes = cache.codebooks->size();
    out = sum;
}

void sequence_stats(CacheState& cache, int64_t sequence, winnow_cache_stats& out) {
    winnow_cache_stats sum{};
    sum.struct_size = out.struct_size;
    add_sequence(*cache.geometry, cache.sequence(sequence), sum);
    add_up(sum);
    sum.budget_bytes = budget_bytes(*cache.geometry);
    out = sum;
}

std::vector<HeldToken> tokens(CacheState& cache, int64_t sequence_number, int64_t layer_number, int64_t head,
                              bool wants_importance) {
    if (wants_importance && !cache.geometry->keeps_importance())
        refuse(to_string(cache.geometry->config()) + " keeps no importance");
    const Layer& layer = cache.sequence(sequence_number).layers[static_cast<size_t>(layer_number)];
    std::vector<HeldToken> found;
    for (const Part part : cache.geometry->parts()) {
        const Layer::HeadSlots its = layer.read_head(*cache.geometry, layer.rows(part), head);
        for (size_t slot = 0; slot < its.entries.size(); ++slot)
            if (its.entries[slot] >= 0)
                found.push_back({its.entries[slot] & ~anchor_flag, its.importance[slot], static_cast<int32_t>(part)});
    }
    std::sort(found.begin(), found.end(), [](const HeldToken& a, const HeldToken& b) { return a.id < b.id; });
    return found;
}

winnow_cache_stats estimate(const CacheRequest& request, int64_t tokens) {
    const Geometry geometry(request, parse(request.config));
    winnow_cache_stats out{};
    out.budget_bytes = budget_bytes(geometry);
    for (int64_t layer = 0; layer < geometry.layers(); ++layer)
        out.codebook_bytes += geometry.recall(layer).codebooks.size;
    if (tokens == 0) return out;
    const Growing growing(geometry, tokens);
    for (int64_t layer = 0; layer < geometry.layers(); ++layer) {
        add_layer(geometry, layer, geometry.dense_slots(), divided(geometry, layer, growing.packed(layer)), out);
        if (geometry.config().recall_folder())
            out.disk_bytes += cold_file_bytes(geometry, layer, growing.packed(layer));
        out.original_bytes += original_bytes(geometry, layer, tokens);
    }
    add_up(out);
    out.scratch_bytes = growing.scratch_bytes();
    out.peak_bytes = growing.peak_bytes();
    out.tokens = unsigned_of(tokens);
    return out;
}

Meaning meaning_of(CacheRequest request) {
    const Config config = parse(request.config);
    const bool needs_profile = make_policy(config)->divides_by_profile();
    if (needs_profile && request.profile.empty()) request.profile.resize(request.shape.layers.size());
    request.is_described = true;
    const Geometry geometry(request, config);
    Meaning meaning;
    meaning.policy = config.policy().name;
    meaning.config = to_string(config);
    meaning.storage_config = to_string(storage_of(config));
    const auto want = [&](const char* name, const char* key) {
        meaning.resources.push_back({name, config.has(key) ? config.word(key) : ""});
    };
    if (needs_profile) want("profile", "profile_file");
    if (config.policy().has_network) want("network", "network_file");
    if (config.signature_kind() == SignatureKind::codes) want("codebooks", "codebook_file");
    for (int64_t layer = 0; layer < geometry.layers(); ++layer) {
        meaning.evicts |= geometry.may_evict(layer);
        meaning.budget_tokens =
            std::max(meaning.budget_tokens, geometry.plan().layer_tokens[static_cast<size_t>(layer)]);
    }
    meaning.keeps_importance = geometry.keeps_importance();
    meaning.k = geometry.k();
    meaning.v = geometry.v();
    meaning.sink = geometry.sink();
    meaning.residual = geometry.residual();
    meaning.cadence = geometry.cadence();
    const int64_t dense = std::min(geometry.dense_slots(), meaning.budget_tokens);
    const std::array<int64_t, most_tiers> packed =
        divide(geometry.plan().lower, meaning.budget_tokens, geometry.dense_slots());
    for (const Part part : geometry.parts()) {
        const size_t tier = meaning.segments.size();
        meaning.segments.push_back({tier == 0 ? dense : packed[tier - 1], geometry.k(part), geometry.v(part)});
    }
    return meaning;
}

} // namespace winnow::cache
