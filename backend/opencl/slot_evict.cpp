// From winnow::SlotEvict to a launch of slot_evict.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "device/network.hpp"
#include "opencl/kv_rows.hpp"
#include "opencl/launchers.hpp"
#include "opencl/view.hpp"
#include "slot_evict_params.h"

namespace winnow::opencl {
namespace {

constexpr bool agrees(Ranking ranking, uint32_t number) { return static_cast<uint32_t>(ranking) == number; }
static_assert(agrees(Ranking::age, RANKING_AGE) && agrees(Ranking::importance, RANKING_IMPORTANCE) &&
              agrees(Ranking::importance_value_distance, RANKING_IMPORTANCE_VALUE_DISTANCE) &&
              agrees(Ranking::random, RANKING_RANDOM) && agrees(Ranking::prediction, RANKING_PREDICTION));
static_assert(network_hidden == HIDDEN_UNITS && sizeof(HiddenUnit) == 4 * sizeof(float));

// Positions are below 2^30, so that nothing is lost.
int32_t position_bound(int64_t position) {
    return static_cast<int32_t>(std::clamp<int64_t>(position, -1, std::numeric_limits<int32_t>::max()));
}

void set_quantile(double quantile, slot_eviction& pass) {
    if (quantile <= 0) return;
    int exponent = 0;
    pass.quantile_bits = static_cast<uint64_t>(std::ldexp(std::frexp(quantile, &exponent), 53));
    pass.quantile_shift = static_cast<uint32_t>(53 - exponent);
}

slot_eviction make_eviction_pass(const SlotEvict& args) {
    const Description& description = args.description;
    slot_eviction pass{};
    pass.of_ranking = description.seed;
    pass.budget = description.budget;
    pass.coming = std::min(args.incoming, description.context - args.seen);
    pass.trigger_part = description.trigger.part;
    pass.trigger_whole = description.trigger.whole;
    pass.target = description.target;
    pass.most = description.most;
    pass.share_part = description.most_share.part;
    pass.share_whole = description.most_share.whole;
    pass.ranking = static_cast<uint32_t>(description.ranking);
    pass.seen = position_bound(args.seen);
    pass.protected_below = position_bound(description.sink);
    // Fewer than `grace` queries saw a token: seen - position < grace.
    pass.protected_from = position_bound(std::min(args.seen - description.recent, args.seen - description.grace + 1));
    pass.eligible_from =
        position_bound(std::max(ceil_of(description.eligible_from, args.seen), description.eligible_first));
    pass.eligible_until = position_bound(ceil_of(description.eligible_until, args.seen));
    if (description.threshold) {
        pass.has_threshold = 1;
        pass.threshold = static_cast<float>(*description.threshold);
        pass.threshold_rest = static_cast<float>(*description.threshold - pass.threshold);
        set_quantile(description.quantile, pass);
    }
    return pass;
}

uint64_t in_whole_vectors(uint64_t slots) { return (slots + 15) / 16 * 16; }

// Rows of the residual window are few, so that kernels take their type as it comes; that of packed rows is compiled in.
void check(const SlotEvict& args) {
    const auto check_dense = [](const Tensor& rows, const char* name) {
        if (rows && is_packed(rows.type))
            throw Error(WINNOW_ERROR_UNSUPPORTED, std::string("slot_evict: the dense segment's ") + name +
                                                      " is expected in F32, F16 or BF16, given is " +
                                                      type_name(rows.type));
    };
    check_dense(args.dense.k, "k");
    check_dense(args.dense.v, "v");
    check_segment(args.packed, "slot_evict: the packed segment's");
    for (const Segment& lower : args.lower) check_segment(lower, "slot_evict: a lower packed segment's");
}

// The parameters that need no memory.
slot_evict_params make_params(const SlotEvict& args, const slot_segment& dense, const slot_segment& packed,
                              const std::vector<BoundSegment>& lower, uint32_t group_size) {
    slot_evict_params params{};
    params.dense = dense;
    params.packed = packed;
    for (size_t i = 0; i < lower.size(); ++i) params.lower[i] = lower[i].params;
    params.pass = make_eviction_pass(args);
    if (args.free_slots) params.free_count = static_cast<uint32_t>(args.free_slots.shape[3]);
    params.residual_first = static_cast<uint32_t>(args.residual_first);
    params.residual_count = args.dense.tokens ? static_cast<uint32_t>(args.residual_count) : 0;
    params.leaving_offset = static_cast<uint32_t>(args.leaving_offset);
    params.leaving_count = static_cast<uint32_t>(args.leaving_count);
    params.wanted_free = static_cast<uint32_t>(args.wanted_free);
    params.wanted_first = static_cast<uint32_t>(args.wanted_first);
    params.first_head = static_cast<uint32_t>(args.first_head);
    params.moves_by_age = args.description.moves_by_age ? 1 : 0;
    params.set_means = args.set_means ? 1 : 0;
    params.k_norm = static_cast<uint8_t>(args.k_norm);
    params.v_norm = static_cast<uint8_t>(args.v_norm);
    params.k_size = static_cast<uint32_t>(args.packed.k.shape[3]);
    params.v_size = static_cast<uint32_t>(args.packed.v.shape[3]);
    params.outputs = static_cast<float>(args.outputs);
    // A head's scratch: keys of all slots, keys of the leaving rows, a point of values for each segment, a row of each
    // work-item, and the lists of slots.
    uint64_t keys = 2 * in_whole_vectors(dense.slots) + in_whole_vectors(packed.slots);
    uint64_t largest = packed.slots;
    for (const BoundSegment& segment : lower) {
        keys += in_whole_vectors(segment.params.slots);
        largest = std::max<uint64_t>(largest, segment.params.slots);
    }
    const uint64_t rows =
        lower.empty() ? 0 : static_cast<uint64_t>(group_size) * std::max(params.k_size, params.v_size);
    const uint64_t lists_at = keys * sizeof(uint64_t) + ((2 + lower.size()) * params.v_size + rows) * sizeof(float);
    const uint64_t lists = group_size > 1 ? (dense.slots + 2 * largest) * sizeof(uint32_t) : 0;
    params.lists_at = static_cast<uint32_t>(lists_at);
    params.scratch_bytes = (lists_at + lists + 63) & ~uint64_t{63};
    return params;
}

bool reads_values(const SlotEvict& args) { return args.description.ranking == Ranking::importance_value_distance; }

// What is ranked, and the rows that leave the residual window. Which rows go down the device decides.
uint64_t bytes_of(const SlotEvict& args) {
    const Description& description = args.description;
    const bool reads_importance = description.ranking != Ranking::age && description.ranking != Ranking::random;
    const auto of_ranking = [&](const Segment& segment) {
        return segment.tokens.stored_bytes() + (reads_importance ? segment.importance.stored_bytes() : 0) +
               (reads_values(args) ? segment.v.stored_bytes() : 0);
    };
    uint64_t bytes = of_ranking(args.dense) + of_ranking(args.packed) + args.free_slots.stored_bytes();
    for (const Segment& segment : args.lower) bytes += of_ranking(segment);
    const auto leaving = static_cast<uint64_t>(args.packed.kv_heads() * args.leaving_count);
    for (const Segment* segment : {&args.dense, &args.packed})
        if (leaving > 0)
            bytes += leaving * (row_bytes(segment->k.type, segment->k.shape[3]) +
                                row_bytes(segment->v.type, segment->v.shape[3]));
    return bytes;
}

// The work of one head, in multiply-adds.
uint64_t work_of_head(const SlotEvict& args, const slot_evict_params& params) {
    uint64_t slots = in_whole_vectors(params.dense.slots) + in_whole_vectors(params.packed.slots);
    for (const slot_segment& segment : params.lower) slots += in_whole_vectors(segment.slots);
    const uint64_t of_prediction = args.description.ranking == Ranking::prediction ? network_numbers : 0;
    const uint64_t work_of_slot = 64 + of_prediction + (reads_values(args) ? uint64_t{2} * params.v_size : 0);
    const uint64_t work_of_row = params.k_size * work_of_element(args.dense.k.type, args.packed.k.type) +
                                 params.v_size * work_of_element(args.dense.v.type, args.packed.v.type);
    return slots * work_of_slot + params.leaving_count * (1 + args.lower.size()) * work_of_row;
}

} // namespace

void launch(Runtime& runtime, SegmentKernel& kernels, const SlotEvict& args) {
    check(args);
    Kernel& kernel = kernels.get(runtime, args.packed.k, args.packed.v, args.lower);
    Operation operation(runtime);
    const BoundSegment dense = bind_segment(operation, args.dense, Access::read_write);
    const BoundSegment packed = bind_segment(operation, args.packed, Access::read_write);
    std::vector<BoundSegment> lower;
    for (const Segment& segment : args.lower) lower.push_back(bind_segment(operation, segment, Access::read_write));
    const Bound output_sum = operation.bind(args.output_sum, Access::read_write);
    const Bound positions = operation.bind(args.positions, Access::read);
    const Bound network = operation.bind(args.network, Access::read);
    const Bound free_slots = operation.bind(args.free_slots, Access::read_write);
    const Bound state = operation.bind(args.head_state, Access::read_write);
    const Variant& variant = kernels.variant();
    slot_evict_params params = make_params(args, dense.params, packed.params, lower, variant.group_size);
    params.positions = positions.offset;
    if (args.description.ranking == Ranking::prediction) params.pass.of_ranking = network.offset;
    if (args.output_sum) params.output_sum = view_of_heads(args.output_sum, output_sum);
    if (args.free_slots) params.free_slots = view_of_heads(args.free_slots, free_slots);
    params.state = view_of_heads(args.head_state, state);
    const auto heads = static_cast<size_t>(args.packed.kv_heads());
    const Memory* scratch = runtime.scratch(heads * params.scratch_bytes, slot_scratch);
    std::vector<const Memory*> memory{dense.k,       dense.v,           dense.tokens,  dense.importance,
                                      dense.k_mean,  dense.v_mean,      packed.k,      packed.v,
                                      packed.tokens, packed.importance, packed.k_mean, packed.v_mean};
    for (const BoundSegment& segment : lower)
        memory.insert(memory.end(), {segment.k, segment.v, segment.tokens, segment.importance});
    memory.insert(memory.end(),
                  {output_sum.memory, positions.memory, network.memory, free_slots.memory, state.memory, scratch});
    operation.launch(kernel, &params, sizeof params, memory,
                     Grid{.groups = {heads, 1, 1},
                          .group_size = {variant.group_size, 1, 1},
                          .work = heads * work_of_head(args, params),
                          .bytes = bytes_of(args)});
    operation.complete(false);
}

} // namespace winnow::opencl
