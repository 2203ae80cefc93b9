// From winnow::SlotFlush to a launch of slot_flush.
#include "opencl/slot_flush.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "opencl/kv_rows.hpp"
#include "opencl/view.hpp"
#include "slot_flush_params.h"

namespace winnow::opencl {
namespace {

constexpr int scratch_slot = 3; // with SlotObserve; nothing in it is to last beyond a launch

constexpr bool agrees(Ranking ranking, uint32_t number) { return static_cast<uint32_t>(ranking) == number; }
static_assert(agrees(Ranking::age, RANKING_AGE) && agrees(Ranking::importance, RANKING_IMPORTANCE) &&
              agrees(Ranking::importance_per_query, RANKING_IMPORTANCE_PER_QUERY) &&
              agrees(Ranking::importance_value_distance, RANKING_IMPORTANCE_VALUE_DISTANCE) &&
              agrees(Ranking::importance_value_norm, RANKING_IMPORTANCE_VALUE_NORM) &&
              agrees(Ranking::random, RANKING_RANDOM));

// Positions are below 2^30, so that nothing is lost.
int32_t position_bound(int64_t position) {
    return static_cast<int32_t>(std::clamp<int64_t>(position, -1, std::numeric_limits<int32_t>::max()));
}

void set_quantile(double quantile, slot_judgement& judgement) {
    if (quantile <= 0) return;
    int exponent = 0;
    judgement.quantile_bits = static_cast<uint64_t>(std::ldexp(std::frexp(quantile, &exponent), 53));
    judgement.quantile_shift = static_cast<uint32_t>(53 - exponent);
}

slot_judgement make_judgement(const SlotFlush& args) {
    const Description& description = args.description;
    slot_judgement judgement{};
    judgement.seed = description.seed;
    judgement.budget = description.budget;
    judgement.coming = std::min(args.incoming, description.context - args.seen);
    judgement.trigger_part = description.trigger.part;
    judgement.trigger_whole = description.trigger.whole;
    judgement.target = description.target;
    judgement.most = description.most;
    judgement.share_part = description.most_share.part;
    judgement.share_whole = description.most_share.whole;
    judgement.ranking = static_cast<uint32_t>(description.ranking);
    judgement.seen = position_bound(args.seen);
    judgement.protected_below = position_bound(description.sink);
    // Fewer than `grace` queries saw a token: seen - position < grace.
    judgement.protected_from =
        position_bound(std::min(args.seen - description.recent, args.seen - description.grace + 1));
    judgement.eligible_from =
        position_bound(std::max(ceil_of(description.eligible_from, args.seen), description.eligible_first));
    judgement.eligible_until = position_bound(ceil_of(description.eligible_until, args.seen));
    if (description.threshold) {
        judgement.has_threshold = 1;
        judgement.threshold = static_cast<float>(*description.threshold);
        judgement.threshold_rest = static_cast<float>(*description.threshold - judgement.threshold);
        set_quantile(description.quantile, judgement);
    }
    return judgement;
}

uint64_t in_whole_vectors(uint64_t slots) { return (slots + 15) / 16 * 16; }

} // namespace

void SlotFlushLauncher::launch(const SlotFlush& args) {
    // The ring's rows are converted from what they are, and are few: kernels take their type as it comes.
    const auto check_dense = [](const Tensor& rows, const char* name) {
        if (rows && is_packed(rows.type))
            throw Error(WINNOW_ERROR_UNSUPPORTED, std::string("slot_flush: the dense store's ") + name +
                                                      " is expected in F32, F16 or BF16, given is " +
                                                      type_name(rows.type));
    };
    check_dense(args.dense.k, "k");
    check_dense(args.dense.v, "v");
    check_store(args.body, "slot_flush: the body's");
    Kernel& kernel = kernel_.get(args.body.k, args.body.v);

    Operation operation(runtime_);
    const BoundStore dense = bind_store(operation, args.dense, Access::read_write);
    const BoundStore body = bind_store(operation, args.body, Access::read_write);
    const Bound output_sum = operation.bind(args.output_sum, Access::read_write);
    const Bound positions = operation.bind(args.positions, Access::read);
    const Bound free_slots = operation.bind(args.free_slots, Access::read_write);
    const Bound state = operation.bind(args.head_state, Access::read_write);
    slot_flush_params params{};
    params.dense = dense.params;
    params.body = body.params;
    params.judgement = make_judgement(args);
    params.positions = positions.offset;
    if (args.output_sum) params.output_sum = view_of_heads(args.output_sum, output_sum);
    if (args.free_slots) {
        params.free_slots = view_of_heads(args.free_slots, free_slots);
        params.free_count = static_cast<uint32_t>(args.free_slots.shape[3]);
    }
    params.state = view_of_heads(args.head_state, state);
    params.ring_first = static_cast<uint32_t>(args.ring_first);
    params.ring_count = args.dense.tokens ? static_cast<uint32_t>(args.ring_count) : 0;
    params.leaving_offset = static_cast<uint32_t>(args.leaving_offset);
    params.leaving_count = static_cast<uint32_t>(args.leaving_count);
    params.wanted_free = static_cast<uint32_t>(args.wanted_free);
    params.set_means = args.set_means ? 1 : 0;
    params.k_norm = static_cast<uint32_t>(args.k_norm);
    params.v_norm = static_cast<uint32_t>(args.v_norm);
    params.k_size = static_cast<uint32_t>(args.body.k.shape[3]);
    params.v_size = static_cast<uint32_t>(args.body.v.shape[3]);
    params.outputs = static_cast<float>(args.outputs);

    const uint64_t dense_keys = in_whole_vectors(params.dense.slots), body_keys = in_whole_vectors(params.body.slots);
    const uint64_t bytes =
        (2 * dense_keys + body_keys) * sizeof(uint64_t) + uint64_t{2} * params.v_size * sizeof(float);
    params.scratch_bytes = (bytes + 63) & ~uint64_t{63};
    const auto heads = static_cast<size_t>(args.body.kv_heads());
    const Memory* scratch = runtime_.scratch(heads * params.scratch_bytes, scratch_slot);
    const bool reads_values = args.description.ranking == Ranking::importance_value_distance ||
                              args.description.ranking == Ranking::importance_value_norm;
    const uint64_t work_of_slot = 64 + (reads_values ? uint64_t{2} * params.v_size : 0);
    const uint64_t work_of_row = params.k_size * work_of_element(args.dense.k.type, args.body.k.type) +
                                 params.v_size * work_of_element(args.dense.v.type, args.body.v.type);
    operation.launch(
        kernel, params,
        {dense.k, dense.v, dense.tokens, dense.importance, dense.k_mean, dense.v_mean, body.k, body.v, body.tokens,
         body.importance, body.k_mean, body.v_mean, output_sum.memory, positions.memory, free_slots.memory,
         state.memory, scratch},
        Grid{.groups = {heads, 1, 1},
             .work = heads * ((dense_keys + body_keys) * work_of_slot + params.leaving_count * work_of_row)});
    operation.complete(false);
}

} // namespace winnow::opencl
