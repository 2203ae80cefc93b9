// A step in the operations that it consists of.
#include "device/slots.hpp"

namespace winnow {

int64_t record_floats(int64_t q_heads, int64_t kv_heads, int64_t slots) { return (q_heads + 2 * kv_heads) * slots; }

SlotObserve observe_of(const SlotStep& step) {
    const Sdpa& sdpa = step.attention.sdpa;
    SlotObserve observe;
    observe.stores = step.attention.stores;
    observe.scores = sdpa.scores_out;
    observe.row_stats = sdpa.row_stats;
    observe.observed = step.observed;
    observe.importance = step.importance;
    if (step.output_sum) observe.out = sdpa.out;
    observe.output_sum = step.output_sum;
    return observe;
}

void Device::step(const SlotStep& args) {
    if (args.append) launch(*args.append);
    launch(args.attention);
    if (args.observed > 0) launch(observe_of(args));
}

} // namespace winnow
