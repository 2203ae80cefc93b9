// Slots that are filled, counted, renamed, moved and made zero: more of them than a group takes, and not a multiple of
// that.
#include <limits>

#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t kv_heads = 2, query_heads = 4, queries = 2, slots = 300, slot_size = 32;
constexpr float infinite = std::numeric_limits<float>::infinity();

// Every slot but each `every`-th, beginning with that, gets a token; ids are a multiple of 3 apart, and in no order.
void give_tokens(CaseSegment& segment, int64_t every) {
    const int64_t count = segment.tokens.elements;
    for (int64_t head = 0; head < kv_heads; ++head)
        for (int64_t slot = 0; slot < count; ++slot)
            if (slot % every != 0)
                segment.tokens.at(head, 0, slot) = static_cast<int32_t>(3 * ((7 * slot + head) % count));
}

CaseRows<float> drawn(CaseNumbers& numbers, int64_t heads, int64_t rows, int64_t elements) {
    CaseRows<float> all(Type::f32, heads, rows, elements);
    for (float& each : all.values) each = numbers.number();
    return all;
}

struct AccumulateState {
    CaseSegment segment;
    CaseRows<float> output_sum{Type::f32, kv_heads, 1, slot_size};

    std::string compared(AccumulateState& right) {
        return first_of({segment.importance.compared(right.segment.importance, "importance", 1e-5),
                         output_sum.compared(right.output_sum, "sum of outputs", 1e-5)});
    }
};

struct CompactState {
    CaseSegment segment;
    CaseRows<int32_t> state{Type::i32, kv_heads, 1, 4, 9};

    std::string compared(CompactState& right) {
        return first_of({segment.compared(right.segment), state.compared(right.state, "number of the state")});
    }
};

} // namespace

std::string test_slot_append(Device& device) {
    constexpr int64_t tokens = 70;
    CaseNumbers numbers;
    const CaseSegment before(numbers, kv_heads, slots, slot_size);
    CaseRows<float> k = drawn(numbers, kv_heads, tokens, slot_size), v = drawn(numbers, kv_heads, tokens, slot_size);
    CaseRows<int32_t> places(Type::i32, kv_heads, 1, tokens, -1);
    for (int64_t head = 0; head < kv_heads; ++head)
        for (int64_t t = 0; t < tokens; ++t)
            if (t % 9 != 4) places.at(head, 0, t) = static_cast<int32_t>((7 * t + 3 + head) % slots); // else nowhere
    return difference(device, before, [&](Device& on, CaseSegment& segment) {
        SlotAppend args;
        args.k = k.tensor();
        args.v = v.tensor();
        args.segment = segment.segment();
        args.slots = places.tensor();
        args.token_id = 1000;
        on.launch(args);
    });
}

std::string test_slot_accumulate(Device& device) {
    CaseNumbers numbers;
    AccumulateState before{CaseSegment(numbers, kv_heads, slots, slot_size)};
    for (size_t i = 0; i < before.segment.tokens.values.size(); ++i)
        before.segment.tokens.values[i] = static_cast<int32_t>(i);
    CaseRows<float> scores = drawn(numbers, query_heads, queries, slots);
    for (int64_t row = 0; row < query_heads * queries; ++row)
        for (int64_t slot = 3; slot < slots; slot += 7) scores.at(0, row, slot) = -infinite; // which nobody sees
    CaseRows<float> stats(Type::f32, query_heads, queries, 2), out = drawn(numbers, query_heads, queries, slot_size);
    for (size_t i = 0; i < stats.values.size(); ++i) stats.values[i] = i % 2 == 0 ? 2 : 10; // the largest, and the sum
    return difference(device, before, [&](Device& on, AccumulateState& state) {
        SlotAccumulate args;
        args.segments = {state.segment.segment()};
        args.scores = scores.tensor();
        args.row_stats = stats.tensor();
        args.counted_queries = queries;
        args.importance.statistic = Statistic::probability;
        args.importance.decay = .5;
        args.out = out.tensor();
        args.output_sum = state.output_sum.tensor();
        on.launch(args);
    });
}

std::string test_slot_edit(Device& device) {
    CaseNumbers numbers;
    CaseSegment before(numbers, kv_heads, 1100, 1); // more than a group has
    give_tokens(before, 5);
    for (size_t i = 0; i < before.tokens.values.size(); i += 4)
        if (before.tokens.values[i] >= 0) before.tokens.values[i] |= anchor_flag;
    return difference(device, before, [](Device& on, CaseSegment& segment) {
        using Action = SlotEdit::Action;
        on.launch(SlotEdit{Action::free, {segment.segment()}, 900, 1000, 0});
        on.launch(SlotEdit{Action::shift, {segment.segment()}, 1500, 4000, 5000});
        on.launch(SlotEdit{Action::anchor, {segment.segment()}, 0, 400, 0});
    });
}

std::string test_slot_compact(Device& device) {
    CaseNumbers numbers;
    CompactState before{CaseSegment(numbers, kv_heads, slots, slot_size)};
    give_tokens(before.segment, 3);
    return difference(device, before, [](Device& on, CompactState& its) {
        SlotCompact args;
        args.segment = its.segment.segment();
        args.head_state = its.state.tensor();
        on.launch(args);
    });
}

std::string test_slot_copy(Device& device) {
    CaseNumbers numbers;
    CaseSegment from(numbers, kv_heads, 130, slot_size), before(numbers, kv_heads, slots, slot_size);
    give_tokens(from, 3);
    give_tokens(before, 5);
    return difference(device, before, [&](Device& on, CaseSegment& to) {
        on.launch(SlotCopy{from.segment(), to.segment()});
    });
}

std::string test_slot_scores(Device& device) {
    constexpr int64_t columns = 3 * slots - 50; // some of the ids are beyond
    CaseNumbers numbers;
    CaseSegment segment(numbers, kv_heads, slots, slot_size);
    give_tokens(segment, 5);
    CaseRows<float> scores = drawn(numbers, query_heads, queries, slots);
    const CaseRows<float> before(Type::f32, query_heads, queries, columns, 99);
    const auto scatter = [&](Device& on, CaseRows<float>& out) {
        SlotScores args;
        args.segments = {segment.segment()};
        args.scores = scores.tensor();
        args.out = out.tensor();
        on.launch(args);
    };
    return difference(device, before, scatter, "score");
}

std::string test_slot_zero(Device& device) {
    CaseNumbers numbers;
    CaseSegment before(numbers, kv_heads, slots, slot_size);
    give_tokens(before, 5);
    return difference(device, before, [](Device& on, CaseSegment& segment) {
        SlotZero args;
        args.segments = {segment.segment()};
        args.k_scale = .5;
        args.v_scale = .8;
        args.sink = 40;
        on.launch(args);
    });
}

} // namespace winnow::opencl
