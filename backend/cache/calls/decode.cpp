// A decode: queries that attend one by one. Without recall that is one query. With recall it is one to eight queries,
// and each picks its pages first.
#include <algorithm>
#include <utility>

#include "cache/calls/layer_call.hpp"
#include "cache/layer/zeroing.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {
namespace {

class Decode : public LayerCall {
public:
    Decode(CacheState& cache, const CacheStep& args) : LayerCall(cache, args), picks_(picks(*cache.geometry, args)) {}

private:
    bool picks_pages() const override { return picks_; }
    void validate(const std::vector<Segment>& segments) const override { validate_chunks(segments, 1); }

    bool changes_before_file() const override {
        if (!cache_.cold_file || appended_ == 0) return false;
        const bool frees =
            std::any_of(cells_.begin(), cells_.end(), [&](int32_t it) { return layer_.index.holds(it); });
        return appended_ > 1 || frees || rows_to_leave(outside_sinks(0, 1)).has_value();
    }

    void bring_tokens() override {
        free_cells();
        if (appended_ > 1) make_room(0, appended_); // once, as for a chunk of them all
        for (int64_t query = 0; query < asked_; ++query) {
            const int64_t before = layer_.index.next();
            make_room(query, 1);
            std::optional<Pending> token = append(query, 1);
            if (picks_) pick_for(query);
            attend(query, 1, {picks_ ? layer_.picked_segments(geometry_) : layer_.segments(geometry_)}, token);
            zero_after_chunk(cache_, layer_, before);
        }
    }

    const bool picks_;
};

} // namespace

std::unique_ptr<LayerCall> make_decode(CacheState& cache, const CacheStep& args) {
    return std::make_unique<Decode>(cache, args);
}

} // namespace winnow::cache
