// Room, an append and an attention for one query after another.
#include "cache/calls/decode.hpp"

#include <algorithm>
#include <utility>

#include "cache/layer/zeroing.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {

Decode::Decode(CacheState& cache, const CacheStep& args)
    : LayerCall(cache, args), picks_(picks(*cache.geometry, args)) {}

bool Decode::changes_before_file() const {
    if (!cache_.cold_file || appended_ == 0) return false;
    const bool frees = std::any_of(cells_.begin(), cells_.end(), [&](int32_t it) { return layer_.index.holds(it); });
    return appended_ > 1 || frees || rows_to_leave(outside_sinks(0, 1)).has_value();
}

SlotAttend Decode::begin_query(int64_t query) {
    before_ = layer_.index.next();
    make_room(query, 1);
    token_ = append(query, 1);
    if (picks_) pick_for(query);
    return attention_with(query, 1, {take_segments()}, token_);
}

void Decode::end_query(const SlotAttend& launched) {
    end_attention(launched, token_);
    zero_after_chunk(cache_, layer_, before_);
}

SlotAttend Decode::begin() {
    free_cells();
    return begin_query(0);
}

void Decode::end(const SlotAttend& launched) {
    end_query(launched);
    layer_.cold.is_moved = false;
}

void Decode::bring_tokens() {
    free_cells();
    if (appended_ > 1) make_room(0, appended_); // once, as for a chunk of them all
    for (int64_t query = 0; query < asked_; ++query) {
        const SlotAttend fused = begin_query(query);
        launch(fused, query, 1);
        end_query(fused);
    }
}

} // namespace winnow::cache
