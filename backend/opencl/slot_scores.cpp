// From winnow::SlotScores to a launch of slot_scores.
#include "opencl/launchers.hpp"

#include <algorithm>
#include <array>

#include "opencl/kv_rows.hpp"
#include "opencl/slot_segment.hpp"
#include "opencl/view.hpp"
#include "slot_scores_params.h"

namespace winnow::opencl {

void launch(Runtime& runtime, const SlotScores& args) {
    if (args.segments.size() > SLOT_MOST_SEGMENTS)
        throw Error(WINNOW_ERROR_UNSUPPORTED, "slot_scores: up to " + std::to_string(SLOT_MOST_SEGMENTS) +
                                                  " segments are supported, given are " +
                                                  std::to_string(args.segments.size()));
    check_row_count(args.out.shape, "slot_scores: out");
    const Variant& variant = rows_variant(runtime, "slot_scores");
    Kernel& kernel = runtime.kernel(variant.file, variant.entry_point, "");

    Operation operation(runtime);
    const Bound scores = operation.bind(args.scores, Access::read);
    const Bound out = operation.bind(args.out, args.keeps_others ? Access::read_write : Access::write);
    slot_scores_params params{};
    params.scores = view(args.scores, scores);
    params.out = view(args.out, out);
    params.keeps_others = args.keeps_others;
    params.group = 1;
    uint64_t slots = 0, bytes_of_maps = 0;
    std::array<const Memory*, SLOT_MOST_SEGMENTS> tokens{};
    for (const Segment& segment : args.segments) {
        if (!segment.tokens) continue;
        const Bound bound = operation.bind(segment.tokens, Access::read);
        tokens.at(params.segment_count) = bound.memory;
        params.segments[params.segment_count++] = {view_of_heads(segment.tokens, bound), static_cast<uint32_t>(slots),
                                                   static_cast<uint32_t>(segment.slots())};
        params.group = static_cast<uint32_t>(args.out.shape[1] / segment.kv_heads());
        slots += static_cast<uint64_t>(segment.slots());
        bytes_of_maps += segment.tokens.stored_bytes();
    }
    params.queries = static_cast<uint32_t>(args.out.shape[2]);
    params.rows = static_cast<uint32_t>(args.out.shape[1]) * params.queries;
    params.columns = static_cast<uint32_t>(args.out.shape[3]);
    const uint64_t row = slots + params.columns / 16;
    const uint64_t written = args.keeps_others ? std::min<uint64_t>(slots, params.columns) : params.columns;
    params.rows_per_group =
        rows_per_group(variant, params.rows, static_cast<int64_t>(row), runtime.capabilities().compute_units);
    operation.launch(kernel, params, {scores.memory, out.memory, tokens[0], tokens[1], tokens[2], tokens[3]},
                     Grid{.groups = {(params.rows + params.rows_per_group - 1) / params.rows_per_group, 1, 1},
                          .group_size = {variant.group_size, 1, 1},
                          .work = params.rows * row * 2,
                          .bytes = params.rows * (slots + written) * sizeof(float) + bytes_of_maps});
    operation.complete(false);
}

} // namespace winnow::opencl
