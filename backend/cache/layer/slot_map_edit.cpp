// Launches an edit, and makes the same one in the map of a cold tier in a file.
#include "cache/layer/slot_map_edit.hpp"

#include <algorithm>

namespace winnow::cache {

void edit(CacheState& cache, Layer& layer, SlotEdit::Action action, Range token_ids, int64_t delta) {
    SlotEdit args;
    args.action = action;
    args.segments = with_own_slots(layer.segments_with_copies(*cache.geometry));
    ColdMap map; // the layer's from where nothing fails any more
    if (cache.cold_file) {
        map = layer.cold.map;
        map.edit(action, token_ids.begin, token_ids.end, delta);
    }
    args.begin = token_ids.begin;
    args.end = std::min<int64_t>(token_ids.end, anchor_flag);
    args.delta = delta;
    if (!args.segments.empty() && args.begin < args.end) cache.device.launch(args);
    if (cache.cold_file) layer.cold.map = std::move(map);
}

void mark_anchors(CacheState& cache, Layer& layer, const std::set<int64_t>& anchors, Range token_ids) {
    for (auto it = anchors.lower_bound(token_ids.begin); it != anchors.end() && *it < token_ids.end;) {
        Range together{*it, *it};
        for (; it != anchors.end() && *it == together.end && *it < token_ids.end; ++it) ++together.end;
        edit(cache, layer, SlotEdit::Action::anchor, together);
    }
}

} // namespace winnow::cache
