// Segments, and what a device does where it has no better way: fused attention in the operations that it consists of,
// tasks in their order.
#include "device/slots.hpp"

namespace winnow {

int64_t fused_weight_floats(int64_t q_heads, int64_t kv_heads, int64_t slots) {
    return (q_heads + 2 * kv_heads) * slots;
}

std::vector<Segment> with_own_slots(const std::vector<Segment>& segments) {
    std::vector<Segment> all;
    for (const Segment& segment : segments)
        if (!segment.shares_slots) all.push_back(segment);
    return all;
}

int64_t slots_in(const std::vector<Segment>& segments) {
    int64_t slots = 0;
    for (const Segment& segment : segments)
        if (!segment.shares_slots) slots += segment.slots();
    return slots;
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

SlotAccumulate accumulate_of(const SlotAttend& args) {
    SlotAccumulate accumulate;
    accumulate.segments = with_own_slots(args.attention.segments);
    accumulate.scores = args.attention.scores_out;
    accumulate.row_stats = args.attention.row_stats;
    accumulate.counted_queries = args.counted_queries;
    accumulate.importance = args.importance;
    if (args.output_sum) accumulate.out = args.attention.out;
    accumulate.output_sum = args.output_sum;
    return accumulate;
}

void Device::attend(const SlotAttend& args) {
    if (args.append) launch(*args.append);
    launch(args.attention, false);
    if (args.counted_queries > 0) launch(accumulate_of(args));
}

void Device::attend(std::span<const SlotAttend> all) {
    for (const SlotAttend& each : all) attend(each);
}

void Device::run_on_host(uint32_t count, const std::function<void(uint32_t)>& task) {
    for (uint32_t i = 0; i < count; ++i) task(i);
}

} // namespace winnow
