// What a device does where it has no better way: a step in the operations that it consists of, tasks in their order.
#include "device/slots.hpp"

namespace winnow {

int64_t step_weight_floats(int64_t q_heads, int64_t kv_heads, int64_t slots) {
    return (q_heads + 2 * kv_heads) * slots;
}

std::vector<Segment> with_own_slots(const std::vector<Segment>& segments) {
    std::vector<Segment> all;
    for (const Segment& segment : segments)
        if (!segment.shares_slots) all.push_back(segment);
    return all;
}

Tensor heads_of(Tensor tensor, int64_t first, int64_t count) {
    if (!tensor) return tensor;
    tensor.offset += static_cast<uint64_t>(first * tensor.stride[1]);
    tensor.shape[1] = count;
    return tensor;
}

Segment heads_of(Segment segment, int64_t first, int64_t count) {
    const int64_t rows = segment.rows_of_head(first);
    for (Tensor* side : {&segment.k, &segment.v}) *side = heads_of(*side, rows, count);
    for (Tensor* beside : {&segment.tokens, &segment.importance, &segment.k_mean, &segment.v_mean})
        *beside = heads_of(*beside, first, count);
    segment.heads = 0;
    segment.shares_slots = false;
    return segment;
}

SlotAccumulate accumulate_of(const SlotStep& step) {
    const Sdpa& sdpa = step.attention.sdpa;
    SlotAccumulate accumulate;
    accumulate.segments = with_own_slots(step.attention.segments);
    accumulate.scores = sdpa.scores_out;
    accumulate.row_stats = sdpa.row_stats;
    accumulate.counted_queries = step.counted_queries;
    accumulate.importance = step.importance;
    if (step.output_sum) accumulate.out = sdpa.out;
    accumulate.output_sum = step.output_sum;
    return accumulate;
}

void Device::step(const SlotStep& args) {
    if (args.append) launch(*args.append);
    launch(args.attention);
    if (args.counted_queries > 0) launch(accumulate_of(args));
}

void Device::run_on_host(uint32_t count, const std::function<void(uint32_t)>& task) {
    for (uint32_t i = 0; i < count; ++i) task(i);
}

} // namespace winnow
