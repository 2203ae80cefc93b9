// Values come into the slots of their tokens, wherever those lie.
#include "cache/calls/set_importance.hpp"

#include "cache/failures.hpp"

#include <unordered_map>

namespace winnow::cache {
namespace {

// A head's importances in a segment as they are going to be; empty where none changes.
std::vector<float> changed(const Geometry& geometry, const Layer& layer, const Rows& rows, int64_t head,
                           const std::unordered_map<int64_t, float>& given) {
    Layer::HeadSlots slots = layer.read_head(geometry, rows, head);
    bool is_changed = false;
    for (size_t slot = 0; slot < slots.entries.size(); ++slot) {
        if (slots.entries[slot] < 0) continue;
        const auto its = given.find(slots.entries[slot] & ~anchor_flag);
        if (its == given.end()) continue;
        slots.importance[slot] = its->second;
        is_changed = true;
    }
    return is_changed ? slots.importance : std::vector<float>();
}

} // namespace

void set_importance(CacheState& cache, int64_t sequence, int64_t layer_number, int64_t head,
                    std::span<const int64_t> token_ids, std::span<const float> importance) {
    const Geometry& geometry = *cache.geometry;
    if (!geometry.keeps_importance()) refuse(to_string(geometry.config()) + " keeps no importance");
    std::unordered_map<int64_t, float> given;
    for (size_t at = 0; at < token_ids.size(); ++at) given[token_ids[at]] = importance[at];
    const Layer& layer = cache.sequence(sequence).layers[static_cast<size_t>(layer_number)];
    struct Change {
        const Rows& rows;
        std::vector<float> values;
    };
    std::vector<Change> changes;
    for (const Part part : geometry.parts()) {
        const Rows& rows = layer.rows(part);
        changes.push_back({rows, changed(geometry, layer, rows, head, given)});
    }
    try {
        for (const Change& each : changes)
            if (!each.values.empty())
                each.rows.importance->write(4 * static_cast<uint64_t>(head * each.rows.slots), each.values.data(),
                                            4 * each.values.size());
    } catch (const Error& error) {
        fail(cache.device, true, error);
    }
}

} // namespace winnow::cache
