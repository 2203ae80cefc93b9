// What a device does where it has no better way: a step in the operations that it consists of, tasks in their order.
#include "device/slots.hpp"

namespace winnow {

int64_t step_weight_floats(int64_t q_heads, int64_t kv_heads, int64_t slots) {
    return (q_heads + 2 * kv_heads) * slots;
}

SlotAccumulate accumulate_of(const SlotStep& step) {
    const Sdpa& sdpa = step.attention.sdpa;
    SlotAccumulate accumulate;
    accumulate.segments = step.attention.segments;
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
