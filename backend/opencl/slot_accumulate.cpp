// From winnow::SlotAccumulate to a launch of slot_accumulate.
#include "opencl/slot_accumulate.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "opencl/kv_rows.hpp"
#include "opencl/slot_segment.hpp"
#include "opencl/view.hpp"
#include "slot_accumulate_params.h"

namespace winnow::opencl {
namespace {

// About how many multiply-adds a score costs, most of them its exponential.
constexpr uint64_t work_of_score = 2;
// A range is worth the start of its group.
constexpr uint64_t slots_of_a_range = 256;

const char* statistic_name(Statistic statistic) {
    switch (statistic) {
    case Statistic::score_magnitude: return "SCORE_MAGNITUDE";
    case Statistic::probability: return "PROBABILITY";
    case Statistic::probability_squared: return "PROBABILITY_SQUARED";
    case Statistic::above_mean: return "ABOVE_MEAN";
    case Statistic::none: break;
    }
    return "0";
}

} // namespace

std::string statistic_option(Statistic statistic) { return std::string("-DSTATISTIC=") + statistic_name(statistic); }

Accumulate accumulate_of(const Importance& importance, int64_t group) {
    const auto queries = static_cast<double>(importance.stands_for);
    const double keep = std::pow(importance.decay, queries),
                 gain = importance.accumulation == Accumulation::ema ? 1 - keep : queries;
    return {static_cast<float>(keep), static_cast<float>(gain / static_cast<double>(group))};
}

Kernel& SlotAccumulateLauncher::kernel_of(const Importance& importance) {
    Kernel*& kernel = kernels_.at(static_cast<size_t>(importance.statistic));
    if (kernel == nullptr) {
        variant_ = &rows_variant(runtime_, "slot_accumulate");
        if (importance.statistic == Statistic::none)
            throw Error(WINNOW_ERROR_INTERNAL, "slot_accumulate: there is no statistic to keep");
        kernel = &runtime_.kernel(variant_->file, variant_->entry_point, statistic_option(importance.statistic));
    }
    return *kernel;
}

void SlotAccumulateLauncher::launch(const SlotAccumulate& args) {
    if (args.segments.size() > SLOT_MOST_SEGMENTS)
        throw Error(WINNOW_ERROR_UNSUPPORTED, "slot_accumulate: up to " + std::to_string(SLOT_MOST_SEGMENTS) +
                                                  " segments are supported, given are " +
                                                  std::to_string(args.segments.size()));
    if (args.counted_queries == 0) return;
    Kernel& kernel = kernel_of(args.importance);

    Operation operation(runtime_);
    const Bound scores = operation.bind(args.scores, Access::read);
    const Bound stats = operation.bind(args.row_stats, Access::read);
    const Bound out = operation.bind(args.out, Access::read);
    const Bound sum = operation.bind(args.output_sum, Access::read_write);
    slot_accumulate_params params{};
    params.scores = view(args.scores, scores);
    params.stats = view(args.row_stats, stats);
    if (args.out) {
        params.out = view(args.out, out);
        params.sum = {sum.offset, args.output_sum.stride[1]};
        params.out_type = static_cast<uint32_t>(args.out.type);
        params.v_size = static_cast<uint32_t>(args.out.shape[3]);
    }
    int64_t heads = 0;
    uint64_t bytes_of_slots = 0;
    std::array<const Memory*, SLOT_MOST_SEGMENTS> importance{};
    for (const Segment& segment : args.segments) {
        const auto first = static_cast<uint32_t>(params.columns);
        params.columns += static_cast<uint32_t>(segment.slots());
        if (!segment.importance) continue; // a segment without slots
        heads = segment.kv_heads();
        const Bound bound = operation.bind(segment.importance, Access::read_write);
        importance.at(params.segment_count) = bound.memory;
        bytes_of_slots += 2 * segment.importance.stored_bytes();
        params.segments[params.segment_count++] = {
            {bound.offset, segment.importance.stride[1]}, first, static_cast<uint32_t>(segment.slots())};
    }
    if (params.segment_count == 0) return;
    params.group = static_cast<uint32_t>(args.scores.shape[1] / heads);
    params.queries = static_cast<uint32_t>(args.counted_queries);
    const Accumulate accumulate = accumulate_of(args.importance, params.group);
    params.keep = accumulate.keep;
    params.gain = accumulate.gain;
    const uint64_t most =
        std::max<uint64_t>(params.columns * static_cast<uint64_t>(params.queries) / slots_of_a_range, 1);
    const uint64_t wanted =
        4 * static_cast<uint64_t>(runtime_.capabilities().compute_units) / static_cast<uint64_t>(heads) + 1;
    params.ranges = variant_->slots_of_group > 0 ? parts_of(*variant_, params.columns)
                                                 : static_cast<uint32_t>(std::min(most, wanted));
    const size_t groups = static_cast<size_t>(heads) * params.ranges;
    // What each query head knows of its row, two floats of it, for each group by itself.
    const Memory* facts = runtime_.scratch(groups * params.group * params.queries * 2 * sizeof(float), slot_scratch);
    const uint64_t rows = static_cast<uint64_t>(args.scores.shape[1]) * params.queries;
    const uint64_t bytes_of_row =
        (params.columns + 2) * sizeof(float) + (args.out ? row_bytes(args.out.type, args.out.shape[3]) : 0);
    operation.launch(kernel, params,
                     {scores.memory, stats.memory, out.memory, sum.memory, importance[0], importance[1], importance[2],
                      importance[3], facts},
                     Grid{.groups = {groups, 1, 1},
                          .group_size = {variant_->group_size, 1, 1},
                          .work = rows * params.columns * work_of_score,
                          .bytes = rows * bytes_of_row + bytes_of_slots + 2 * args.output_sum.stored_bytes()});
    operation.complete(false);
}

} // namespace winnow::opencl
