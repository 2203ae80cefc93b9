// Slot maps against the token index, head by head.
#include "cache/state/check_loaded.hpp"

#include <algorithm>

#include "cache/plan/config_value.hpp"

namespace winnow::cache {
namespace {

using Maps = std::vector<int32_t>; // [heads, slots]

class LayerCheck {
public:
    LayerCheck(const Geometry& geometry, const std::set<int64_t>& anchors, const Layer& layer)
        : geometry_(geometry), anchors_(anchors), layer_(layer), saved_(layer.index.save()),
          heads_(geometry.shape(layer.number).kv_heads) {}

    // What is wrong, or NULL.
    const char* wrong() const {
        if (const char* what = wrong_index()) return what;
        if (!layer_.state) return nullptr;
        if (layer_.slots() == 0) return "its memory has no slots";
        std::vector<Maps> maps;
        for (const Part part : geometry_.parts()) maps.push_back(layer_.map_of(geometry_, layer_.rows(part)));
        const std::vector<int32_t> free_listed = layer_.read_state<int32_t>(geometry_.state(layer_.number).free_slots);
        for (int64_t head = 0; head < heads_; ++head) {
            std::vector<Maps> of_head;
            for (const Maps& each : maps) {
                const auto slots = static_cast<int64_t>(each.size()) / heads_;
                of_head.emplace_back(each.begin() + head * slots, each.begin() + (head + 1) * slots);
            }
            if (const char* what = wrong_maps(of_head)) return what;
            if (const char* what = wrong_list(free_listed, head, of_head[1])) return what;
        }
        return wrong_state();
    }

private:
    // The places that are of one token, and only of one that is there.
    const char* wrong_index() const {
        const TokenIndex& index = layer_.index;
        if (!layer_.state &&
            (index.tokens() > 0 || index.newest() > 0 || layer_.most_resident() > 0 || layer_.free_listed > 0))
            return "it has tokens and no memory";
        std::vector<int64_t> placed;
        for (const std::vector<int64_t>* token_ids : {&saved_.sinks, &saved_.newest})
            for (const int64_t token_id : *token_ids)
                if (token_id >= 0) placed.push_back(token_id);
        std::sort(placed.begin(), placed.end());
        if (std::adjacent_find(placed.begin(), placed.end()) != placed.end()) return "a token has two places";
        const bool are_there = std::all_of(placed.begin(), placed.end(), [&](int64_t it) { return index.holds(it); });
        if (!are_there) return "a place is of a token that is not there";
        std::vector<int32_t> positions;
        for (const int32_t position : saved_.cells)
            if (position >= 0) positions.push_back(position);
        std::sort(positions.begin(), positions.end());
        if (std::adjacent_find(positions.begin(), positions.end()) != positions.end())
            return "two cells have one position";
        constexpr int64_t most = no_end / 2; // sums with it stay within 64 bits
        return saved_.moved > most || layer_.outputs > most ? "a count is too large" : nullptr;
    }

    // The token that a dense slot is for, or -1.
    int64_t expected(int64_t slot) const {
        if (slot < geometry_.sink()) return saved_.sinks[static_cast<size_t>(slot)];
        const int64_t residual = geometry_.residual();
        const int64_t after = (slot - geometry_.sink() - saved_.moved % residual + residual) % residual; // the oldest
        const auto at = static_cast<size_t>(after);
        return at < saved_.newest.size() ? saved_.newest[at] : -1;
    }

    // Of a head's segments, the dense one first.
    const char* wrong_maps(const std::vector<Maps>& maps) const {
        const Maps& dense = maps.front();
        std::vector<int32_t> tokens;
        int64_t in_packed = 0;
        for (const Maps& map : maps)
            for (const int32_t entry : map) {
                if (entry < 0) continue;
                const int32_t token_id = entry & ~anchor_flag;
                if (!holds(token_id)) return "a slot has a token that is not there";
                if (((entry & anchor_flag) != 0) != anchors_.contains(token_id)) return "a slot's anchor is not one";
                tokens.push_back(token_id);
                in_packed += &map != &dense;
            }
        for (size_t slot = 0; slot < dense.size(); ++slot)
            if (dense[slot] >= 0 && (dense[slot] & ~anchor_flag) != expected(static_cast<int64_t>(slot)))
                return "a dense slot has another's token";
        if (in_packed > (geometry_.residual() > 0 ? layer_.most_in_packed : layer_.most_resident()))
            return "a packed segment holds too many";
        const auto resident = static_cast<int64_t>(tokens.size());
        const int64_t budget = geometry_.plan().layer_tokens[static_cast<size_t>(layer_.number)];
        if (!geometry_.covers_all(layer_.number) && resident > budget) return "a head holds more than its budget";
        std::sort(tokens.begin(), tokens.end());
        return std::adjacent_find(tokens.begin(), tokens.end()) != tokens.end() ? "two slots have one token" : nullptr;
    }

    bool holds(int32_t token_id) const {
        const bool is_token_id = !geometry_.has_cells() || token_id < geometry_.request().cells;
        return is_token_id && layer_.index.holds(token_id);
    }

    // The free-listed slots that the next tokens take are free, and each is one token's. Those of the newest tokens are
    // theirs: where these are truncated, the next ones take their slots. A head that was restored without some of them
    // has the others in the slots before.
    const char* wrong_list(const std::vector<int32_t>& all, int64_t head, const Maps& packed) const {
        if (all.empty()) return nullptr;
        const int64_t most = most_free_listed(geometry_.config());
        std::vector<int32_t> coming;
        for (int64_t at = 0; at < layer_.free_listed; ++at) {
            const int32_t slot = all[static_cast<size_t>(head * most + at)];
            if (slot < 0) continue;
            if (slot >= layer_.packed.slots) return "a free-listed slot is not there";
            const int32_t entry = packed[static_cast<size_t>(slot)];
            const auto from = saved_.newest.begin() + std::min(at, layer_.index.newest());
            if (entry >= 0 && std::find(from, saved_.newest.end(), entry & ~anchor_flag) == saved_.newest.end())
                return "a free-listed slot is not free";
            coming.push_back(slot);
        }
        std::sort(coming.begin(), coming.end());
        return std::adjacent_find(coming.begin(), coming.end()) != coming.end() ? "a slot is free-listed twice"
                                                                                : nullptr;
    }

    const char* wrong_state() const {
        for (const HeadState& head : layer_.read_head_state(geometry_))
            if (head.live < 0 || head.evicted != 0 || head.shortfall < 0) return "a head's counts make no sense";
        const std::vector<int32_t> positions = layer_.read_state<int32_t>(geometry_.state(layer_.number).positions);
        for (size_t cell = 0; cell < positions.size(); ++cell)
            if (saved_.cells[cell] >= 0 && positions[cell] != saved_.cells[cell]) return "a cell's position is not its";
        return nullptr;
    }

    const Geometry& geometry_;
    const std::set<int64_t>& anchors_;
    const Layer& layer_;
    TokenIndex::Saved saved_;
    int64_t heads_;
};

} // namespace

const char* wrong_with(const Geometry& geometry, const std::set<int64_t>& anchors, const Layer& layer) {
    return LayerCheck(geometry, anchors, layer).wrong();
}

void check_loaded(const CacheState& cache, int64_t sequence_number, const Sequence& sequence) {
    const Geometry& geometry = *cache.geometry;
    const auto fail = [&](const std::string& where, const char* what) {
        refuse("sequence " + std::to_string(sequence_number) + where + ": " + what);
    };
    const int64_t token_ids = geometry.has_cells() ? geometry.request().cells : geometry.context();
    if (sequence.reserved < 0 || sequence.reserved > token_ids) fail("", "more is reserved than there can be");
    const std::set<int64_t>& anchors = sequence.anchors;
    if (!anchors.empty() && (*anchors.begin() < 0 || *anchors.rbegin() >= token_ids))
        fail("", "an anchor is no token's");
    for (const Layer& layer : sequence.layers) {
        if (const char* what = wrong_with(geometry, anchors, layer))
            fail(" layer " + std::to_string(layer.number), what);
        geometry.check_anchors(sequence_number, layer.number, static_cast<int64_t>(anchors.size()),
                               layer.index.displaced(geometry.keep()));
    }
}

} // namespace winnow::cache
