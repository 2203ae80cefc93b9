// Slots that are filled, counted, renamed, moved and made zero: more of them than a group takes, and not a multiple of
// that.
#include <algorithm>
#include <limits>

#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t kv_heads = 2, query_heads = 4, query_group = query_heads / kv_heads, queries = 2;
constexpr int64_t slots = 300, slot_size = 32;
constexpr float infinite = std::numeric_limits<float>::infinity();

// Every slot but each `every`-th, beginning with that, gets a token; ids are a multiple of 3 apart, and in no order.
void give_tokens(CaseSegment& segment, int64_t every) {
    const int64_t count = segment.tokens.elements;
    for (int64_t head = 0; head < kv_heads; ++head)
        for (int64_t slot = 0; slot < count; ++slot)
            if (slot % every != 0)
                segment.tokens.at(head, 0, slot) = static_cast<int32_t>(3 * ((7 * slot + head) % count));
}

CaseRows<float> case_scores(CaseNumbers& numbers, int64_t columns) {
    CaseRows<float> scores(Type::f32, query_heads, queries, columns);
    for (float& each : scores.values) each = numbers.number();
    return scores;
}

bool is_meant(int32_t entry, const SlotEdit& edit) {
    return entry >= 0 && (entry & ~anchor_flag) >= edit.begin && (entry & ~anchor_flag) < edit.end;
}

// The elements of a side of a head that take part in making elements zero.
template <typename Use>
void each_element(CaseSegment& segment, CaseRows<uint16_t>& rows, int64_t head, int64_t sink, const Use& use) {
    for (int64_t slot = 0; slot < slots; ++slot)
        for (int64_t i = 0; segment.tokens.at(head, 0, slot) >= sink && i < slot_size; ++i) use(rows.at(head, slot, i));
}

double magnitude(uint16_t bits) { return std::abs(half_number(bits)); }

void zero_small(CaseSegment& segment, CaseRows<uint16_t>& rows, double scale, int64_t sink) {
    for (int64_t head = 0; head < kv_heads; ++head) {
        double count = 0, sum = 0, squares = 0;
        each_element(segment, rows, head, sink, [&](uint16_t bits) {
            ++count;
            sum += magnitude(bits);
            squares += magnitude(bits) * magnitude(bits);
        });
        const double mean = sum / count, deviation = std::sqrt(squares / count - mean * mean);
        const double least = scale * std::max(deviation / 2, mean);
        each_element(segment, rows, head, sink, [&](uint16_t& bits) {
            if (magnitude(bits) < least) bits = 0;
        });
    }
}

} // namespace

std::string test_slot_append(Device& device) {
    constexpr int64_t tokens = 70, first_id = 1000;
    CaseNumbers numbers;
    CaseSegment found(numbers, kv_heads, slots, slot_size), right = found;
    CaseRows<float> k(Type::f32, kv_heads, tokens, slot_size), v = k;
    CaseRows<int32_t> places(Type::i32, kv_heads, 1, tokens, -1);
    for (CaseRows<float>* rows : {&k, &v})
        for (float& each : rows->values) each = numbers.number();
    for (int64_t head = 0; head < kv_heads; ++head)
        for (int64_t t = 0; t < tokens; ++t) {
            if (t % 9 == 4) continue; // nowhere
            const int64_t slot = (7 * t + 3 + head) % slots;
            places.at(head, 0, t) = static_cast<int32_t>(slot);
            for (int64_t i = 0; i < slot_size; ++i) {
                right.k.at(head, slot, i) = half_bits(k.at(head, t, i));
                right.v.at(head, slot, i) = half_bits(v.at(head, t, i));
            }
            right.tokens.at(head, 0, slot) = static_cast<int32_t>(first_id + t);
            right.importance.at(head, 0, slot) = 0;
        }
    SlotAppend args;
    args.k = k.tensor();
    args.v = v.tensor();
    args.segment = found.segment();
    args.slots = places.tensor();
    args.token_id = first_id;
    device.launch(args);
    device.finish();
    return found.compared(right);
}

std::string test_slot_accumulate(Device& device) {
    constexpr float largest = 2, sum = 10;
    CaseNumbers numbers;
    CaseSegment found(numbers, kv_heads, slots, slot_size);
    for (int64_t i = 0; i < kv_heads * slots; ++i)
        found.tokens.values[static_cast<size_t>(i)] = static_cast<int32_t>(i);
    CaseSegment right = found;
    CaseRows<float> scores = case_scores(numbers, slots);
    for (int64_t row = 0; row < query_heads * queries; ++row)
        for (int64_t slot = 3; slot < slots; slot += 7) scores.at(0, row, slot) = -infinite; // which nobody sees
    CaseRows<float> stats(Type::f32, query_heads, queries, 2), out(Type::f32, query_heads, queries, slot_size);
    CaseRows<float> output_sum(Type::f32, kv_heads, 1, slot_size), right_sum = output_sum;
    for (size_t i = 0; i < stats.values.size(); ++i) stats.values[i] = i % 2 == 0 ? largest : sum;
    for (float& each : out.values) each = numbers.number();
    for (int64_t h = 0; h < query_heads; ++h)
        for (int64_t query = 0; query < queries; ++query)
            for (int64_t i = 0; i < slot_size; ++i) right_sum.at(h / query_group, 0, i) += out.at(h, query, i);
    for (int64_t head = 0; head < kv_heads; ++head)
        for (int64_t slot = 0; slot < slots; ++slot)
            for (int64_t query = 0; query < queries && slot % 7 != 3; ++query) {
                double probability = 0;
                for (int64_t h = head * query_group; h < (head + 1) * query_group; ++h)
                    probability += std::exp(static_cast<double>(scores.at(h, query, slot) - largest)) / sum;
                float& importance = right.importance.at(head, 0, slot);
                importance = static_cast<float>(.5 * importance + .5 * probability / query_group);
            }
    SlotAccumulate args;
    args.segments = {found.segment()};
    args.scores = scores.tensor();
    args.row_stats = stats.tensor();
    args.counted_queries = queries;
    args.importance.statistic = Statistic::probability;
    args.importance.decay = .5;
    args.out = out.tensor();
    args.output_sum = output_sum.tensor();
    device.launch(args);
    device.finish();
    return first_of({found.importance.compared("importance", right.importance, 1e-5),
                     output_sum.compared("sum of outputs", right_sum, 1e-5)});
}

std::string test_slot_edit(Device& device) {
    CaseNumbers numbers;
    CaseSegment found(numbers, kv_heads, 1100, 1); // more than a group has
    give_tokens(found, 5);
    for (size_t i = 0; i < found.tokens.values.size(); i += 4)
        if (found.tokens.values[i] >= 0) found.tokens.values[i] |= anchor_flag;
    CaseRows<int32_t> right = found.tokens;
    using Action = SlotEdit::Action;
    const SlotEdit edits[] = {{Action::free, {found.segment()}, 900, 1000, 0},
                              {Action::shift, {found.segment()}, 1500, 4000, 5000},
                              {Action::anchor, {found.segment()}, 0, 400, 0}};
    for (const SlotEdit& edit : edits) {
        for (int32_t& entry : right.values) {
            if (!is_meant(entry, edit)) continue;
            if (edit.action == Action::free) entry = free_slot;
            if (edit.action == Action::shift) entry += static_cast<int32_t>(edit.delta);
            if (edit.action == Action::anchor) entry |= anchor_flag;
        }
        device.launch(edit);
    }
    device.finish();
    return found.tokens.compared("slot", right);
}

std::string test_slot_compact(Device& device) {
    CaseNumbers numbers;
    CaseSegment found(numbers, kv_heads, slots, slot_size);
    give_tokens(found, 3);
    CaseSegment right = found;
    CaseRows<int32_t> state(Type::i32, kv_heads, 1, 4, 9), right_state = state;
    for (int64_t head = 0; head < kv_heads; ++head) {
        const std::vector<int64_t> free = found.free_slots(head);
        const int64_t live = slots - static_cast<int64_t>(free.size());
        size_t next = 0;
        for (int64_t slot = live; slot < slots; ++slot) {
            if (found.tokens.at(head, 0, slot) < 0) continue;
            found.copy_slot(head, slot, right, free[next++]);
            right.tokens.at(head, 0, slot) = free_slot;
        }
        right_state.at(head, 0, 0) = static_cast<int32_t>(live);
    }
    SlotCompact args;
    args.segment = found.segment();
    args.head_state = state.tensor();
    device.launch(args);
    device.finish();
    return first_of({found.compared(right), state.compared("number of the state", right_state)});
}

std::string test_slot_copy(Device& device) {
    constexpr int64_t fewer = 130;
    CaseNumbers numbers;
    CaseSegment from(numbers, kv_heads, fewer, slot_size), to(numbers, kv_heads, slots, slot_size);
    give_tokens(from, 3);
    give_tokens(to, 5);
    CaseSegment right = to;
    for (int64_t head = 0; head < kv_heads; ++head) {
        for (int64_t slot = 0; slot < fewer; ++slot) from.copy_slot(head, slot, right, slot);
        for (int64_t slot = fewer; slot < slots; ++slot) right.tokens.at(head, 0, slot) = free_slot;
    }
    device.launch(SlotCopy{from.segment(), to.segment()});
    device.finish();
    return to.compared(right);
}

std::string test_slot_scores(Device& device) {
    constexpr int64_t columns = 3 * slots - 50; // some of the ids are beyond
    CaseNumbers numbers;
    CaseSegment segment(numbers, kv_heads, slots, slot_size);
    give_tokens(segment, 5);
    CaseRows<float> scores = case_scores(numbers, slots), found(Type::f32, query_heads, queries, columns, 99);
    CaseRows<float> right(Type::f32, query_heads, queries, columns, -infinite);
    for (int64_t h = 0; h < query_heads; ++h)
        for (int64_t query = 0; query < queries; ++query)
            for (int64_t slot = 0; slot < slots; ++slot) {
                const int32_t token = segment.tokens.at(h / query_group, 0, slot);
                if (token >= 0 && token < columns) right.at(h, query, token) = scores.at(h, query, slot);
            }
    SlotScores args;
    args.segments = {segment.segment()};
    args.scores = scores.tensor();
    args.out = found.tensor();
    device.launch(args);
    device.finish();
    return found.compared("score", right);
}

std::string test_slot_zero(Device& device) {
    constexpr double k_scale = .5, v_scale = .8;
    constexpr int64_t sink = 40;
    CaseNumbers numbers;
    CaseSegment found(numbers, kv_heads, slots, slot_size);
    give_tokens(found, 5);
    CaseSegment right = found;
    zero_small(right, right.k, k_scale, sink);
    zero_small(right, right.v, v_scale, sink);
    SlotZero args;
    args.segments = {found.segment()};
    args.k_scale = k_scale;
    args.v_scale = v_scale;
    args.sink = sink;
    device.launch(args);
    device.finish();
    return found.compared(right);
}

} // namespace winnow::opencl
