// Values come into the slots of their tokens, wherever those lie.
#include "cache/calls/set_importance.hpp"

#include "cache/failures.hpp"

#include <unordered_map>

namespace winnow::cache {
namespace {

// The importances that a host gives, found by token. Hosts mostly name all tokens in order, which takes no table.
class Given {
public:
    Given(std::span<const int64_t> tokens, std::span<const float> importance)
        : importance_(importance), first_(tokens.empty() ? 0 : tokens.front()) {
        for (size_t at = 0; at < tokens.size() && is_run_; ++at)
            is_run_ = tokens[at] == first_ + static_cast<int64_t>(at);
        for (size_t at = 0; at < tokens.size() && !is_run_; ++at) table_[tokens[at]] = at;
    }

    // nullptr where none is given.
    const float* of(int64_t token) const {
        size_t at = static_cast<size_t>(token - first_); // far too large for a token before the first
        if (!is_run_) {
            const auto its = table_.find(token);
            at = its == table_.end() ? importance_.size() : its->second;
        }
        return at < importance_.size() ? &importance_[at] : nullptr;
    }

private:
    std::span<const float> importance_;
    int64_t first_;
    bool is_run_ = true;
    std::unordered_map<int64_t, size_t> table_;
};

// A head's importances in a segment as they are going to be; empty where none changes.
std::vector<float> changed(const Geometry& geometry, const Layer& layer, const Rows& rows, int64_t head,
                           const Given& given) {
    Layer::HeadSlots slots = layer.read_head(geometry, rows, head);
    bool is_changed = false;
    for (size_t slot = 0; slot < slots.entries.size(); ++slot) {
        if (slots.entries[slot] < 0) continue;
        const float* const its = given.of(slots.entries[slot] & ~anchor_flag);
        if (its == nullptr) continue;
        slots.importance[slot] = *its;
        is_changed = true;
    }
    return is_changed ? slots.importance : std::vector<float>();
}

} // namespace

void set_importance(CacheState& cache, int64_t sequence, int64_t layer_number, int64_t head,
                    std::span<const int64_t> token_ids, std::span<const float> importance) {
    const Geometry& geometry = *cache.geometry;
    if (!geometry.keeps_importance()) refuse(to_string(geometry.config()) + " keeps no importance");
    const Given given(token_ids, importance);
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
