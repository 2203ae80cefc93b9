// Steps that may not wait (WINNOW_STEP_NO_WAIT). What makes a call wait is asked here before it begins, from the same
// plans that the call then carries out: memory that is taken, which running work may have to be copied out of, and
// what is read back from the device or from a file.
#include <algorithm>
#include <string>

#include "cache/calls/layer_call.hpp"

namespace winnow::cache {
namespace {

// Tensors of a step that the device gets, and that are in no buffer.
bool has_host_tensors(const CacheStep& step) {
    const auto tensors = {&step.k,         &step.v,          &step.q,    &step.out,        &step.alibi_slopes,
                          &step.head_sink, &step.scores_out, &step.mask, &step.mask_slopes};
    return std::any_of(tensors.begin(), tensors.end(), [](const Tensor* each) { return *each && !each->buffer; });
}

} // namespace

const char* why_waits(const CacheState& cache, const CacheStep& step, bool marks_event) {
    if (cache.cold_file) return "with recall=FOLDER each step reads a file; call the step without NO_WAIT";
    if (step.cells && step.cells.buffer)
        return "cells are in a buffer, which has to be read first; give them in host memory";
    return cache.device.why_waits(has_host_tensors(step), marks_event);
}

void refuse_to_wait(const char* why) {
    if (why) throw Error(WINNOW_ERROR_WOULD_WAIT, std::string("the step would wait: ") + why);
}

const char* LayerCall::why_waits(const GrowthPlan& plan) const {
    if (plan.scratch_slots > 0 && geometry_.importance(layer_.number).statistic == Statistic::none)
        return "scores_out needs memory that only a step takes; call the step without NO_WAIT";
    if (!plan.is_empty() || takes_memory())
        return "the layer needs more memory; call cache_reserve before, or the step without NO_WAIT";
    if (!geometry_.recalls()) return nullptr;
    if (may_evict_oldest()) return "the oldest tokens of the cold tier have to go; call the step without NO_WAIT";
    // An eviction pass, a pick and a prompt need the signatures of all rows.
    const bool may_pass = appended_ > 0 && most_leaving();
    const bool frees =
        std::any_of(cells_.begin(), cells_.end(), [&](int32_t cell) { return layer_.index.holds(cell); });
    const bool mixes = may_pass && geometry_.has_cold_budget() && !layer_.index.stay_newest_last();
    if (layer_.packed.slots > 0 && (asked_ > 0 || may_pass) && (!layer_.is_signed || frees || mixes))
        return "rows of the cold tier have to be signed anew; call the step without NO_WAIT";
    return nullptr;
}

} // namespace winnow::cache
