// cache_step: a call for each sequence, and what they do together.
#include <algorithm>
#include <string>
#include <vector>

#include "cache/calls/decode.hpp"
#include "cache/failures.hpp"
#include "cache/recall/cold_rows.hpp"
#include "cache/recall/recall.hpp"

namespace winnow::cache {

bool picks(const Geometry& geometry, const CacheStep& args) {
    return geometry.recalls() && args.asked() > 0 && args.asked() <= std::min(most_picking, geometry.chunk());
}

namespace {

bool is_decode(const Geometry& geometry, const CacheStep& args) {
    return geometry.recalls() ? picks(geometry, args) : args.asked() == 1;
}

// Whether it is a decode that may attend in one launch with those of other sequences.
bool goes_together(const Geometry& geometry, const CacheStep& args) {
    return is_decode(geometry, args) && !geometry.recalls() && !args.scores_out &&
           !geometry.attends_by_heads(args.layer);
}

std::unique_ptr<LayerCall> make_call(CacheState& cache, const CacheStep& args) {
    const Geometry& geometry = *cache.geometry;
    if (is_decode(geometry, args)) return std::make_unique<Decode>(cache, args);
    if (geometry.recalls() && (args.asked() > 0 || args.appended() > geometry.chunk()))
        return make_cold_prompt(cache, args);
    return make_prompt(cache, args);
}

// What the layer of a call was before it.
struct Backup {
    PickCountsBackup counts;
    std::optional<LayerBackup> layer;

    Backup(CacheState& cache, LayerCall& call, bool has_layer) : counts(cache, call.layer()) {
        if (has_layer) layer.emplace(cache, call.layer());
    }
    void restore() {
        if (layer) layer->restore();
        counts.restore();
    }
};

// One call after the other. Where the file of a cold tier fails one of them, all layers are as before.
void run_all(CacheState& cache, std::span<LayerCall* const> calls) {
    std::vector<Backup> backups;
    const auto restore = [&] {
        for (auto backup = backups.rbegin(); backup != backups.rend(); ++backup) backup->restore();
    };
    undoing(restore, [&] {
        for (LayerCall* call : calls) {
            const bool is_last = call == calls.back();
            if (cache.cold_file) backups.emplace_back(cache, *call, !is_last || call->changes_before_file());
            call->run();
        }
    });
}

// How much of the scratch an attention's weights take.
int64_t weight_floats(const SlotAttend& fused) {
    int64_t slots = 0;
    for (const Segment& segment : fused.attention.segments)
        if (!segment.shares_slots) slots += whole_weight_slots(segment.slots());
    return fused_weight_floats(fused.attention.q_heads(), fused.attention.kv_heads(), slots);
}

// In as few launches as the scratch has room for their weights.
void attend_together(CacheState& cache, std::span<SlotAttend> all) {
    for (size_t first = 0, end = 0; first < all.size(); first = end) {
        int64_t used = 0;
        for (; end < all.size(); ++end) {
            Tensor& weights = all[end].weights;
            if (!weights) continue;
            const int64_t floats = weight_floats(all[end]);
            if (end > first && used + floats > weights.shape[3]) break;
            weights.offset = 4 * static_cast<uint64_t>(used);
            weights.shape[3] -= used;
            used += floats;
        }
        cache.device.attend(std::span<const SlotAttend>(all.subspan(first, end - first)));
    }
}

void decode_together(CacheState& cache, std::span<Decode* const> decodes) {
    std::vector<SlotAttend> attentions;
    for (Decode* decode : decodes) attentions.push_back(decode->begin());
    attend_together(cache, attentions);
    for (size_t i = 0; i < decodes.size(); ++i) decodes[i]->end(attentions[i]);
}

// An error of action(i) says which entry it is about.
template <class Action>
void for_each_entry(size_t entries, Action action) {
    for (size_t i = 0; i < entries; ++i) {
        try {
            action(i);
        } catch (const Error& error) {
            if (entries == 1) throw;
            throw Error(error.status(), "entries[" + std::to_string(i) + "]: " + error.what());
        }
    }
}

} // namespace

void run_step(CacheState& cache, std::span<const CacheStep> steps, bool marks_event) {
    std::vector<std::unique_ptr<LayerCall>> calls;
    std::vector<Decode*> together;
    std::vector<LayerCall*> others;
    StepMemory memory;
    for_each_entry(steps.size(), [&](size_t i) { // a wrong argument of any entry says more than why another waits
        if (steps.size() > 1 && goes_together(*cache.geometry, steps[i])) {
            auto decode = std::make_unique<Decode>(cache, steps[i]);
            together.push_back(decode.get());
            calls.push_back(std::move(decode));
        } else {
            calls.push_back(make_call(cache, steps[i]));
            others.push_back(calls.back().get());
        }
    });
    for_each_entry(steps.size(), [&](size_t i) {
        if (!steps[i].may_wait) refuse_to_wait(why_waits(cache, steps[i], marks_event));
    });
    for_each_entry(steps.size(), [&](size_t i) { calls[i]->prepare(memory); });
    cache.note_peak(memory.bytes);
    for (const auto& call : calls) call->copy_rows();
    for (const auto& call : calls) call->adopt();
    decode_together(cache, together);
    run_all(cache, others);
    ++cache.steps;
}

} // namespace winnow::cache
