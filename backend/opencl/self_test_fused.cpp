// The fused attention of one token as the policy "winnow" has it: the token comes into a dense segment in f16, beside
// one of keys in turbo4 and values in turbo3; its query attends over both, by their slot maps, and what that showed is
// accumulated into the importance of each slot.
#include <limits>

#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

struct FusedSizes {
    int64_t heads, dense, packed; // KV heads, and slots of the segments
};
constexpr int64_t fused_group = 4, fused_size = 64; // query heads of a KV head, and their elements
constexpr int64_t position_of_token = 5000;
constexpr int32_t position_after = 6000; // which a query does not see

// What lies in memory before, and after.
struct FusedState {
    CaseSegment dense;
    CaseRows<int32_t> tokens; // of the packed segment
    CaseRows<float> importance, out, output_sum;

    FusedState(CaseNumbers& drawn, const FusedSizes& sizes)
        : dense(drawn, sizes.heads, sizes.dense, fused_size), tokens(Type::i32, sizes.heads, 1, sizes.packed),
          importance(Type::f32, sizes.heads, 1, sizes.packed),
          out(Type::f32, sizes.heads * fused_group, 1, fused_size, std::numeric_limits<float>::quiet_NaN()),
          output_sum(Type::f32, sizes.heads, 1, fused_size, 0.5f) {
        // So small that what a query adds is not lost in it.
        for (CaseRows<float>* each : {&importance, &dense.importance})
            for (float& x : each->values) x = static_cast<float>(drawn.below(1000)) * 1e-7f;
        for (CaseRows<int32_t>* map : {&tokens, &dense.tokens})
            for (int64_t head = 0; head < sizes.heads; ++head)
                for (int64_t slot = 0; slot < map->elements; ++slot)
                    map->at(head, 0, slot) = entry(static_cast<int32_t>((map == &tokens ? 0 : 1000) + slot),
                                                   static_cast<int32_t>(head + slot));
    }
    static int32_t entry(int32_t token, int32_t number) {
        return number % 7 == 3    ? free_slot
               : number % 11 == 5 ? position_after
               : number % 5 == 1  ? token | anchor_flag
                                  : token;
    }
    std::string compared(FusedState& right) {
        return first_of({dense.tokens.compared(right.dense.tokens, "dense slot"), dense.k.compared(right.dense.k, "k"),
                         dense.v.compared(right.dense.v, "v"), tokens.compared(right.tokens, "packed slot"),
                         out.compared(right.out, "element", 1e-4), // up to 6
                         output_sum.compared(right.output_sum, "sum of outputs", 4e-4),
                         dense.importance.compared(right.dense.importance, "importance of dense slot", 1e-9, 1e-4),
                         importance.compared(right.importance, "importance of packed slot", 1e-9, 1e-4)});
    }
};

// A tensor in memory of the device's own: weights have to be where a buffer begins.
Tensor scratch_of(std::unique_ptr<Buffer>& buffer, std::array<int64_t, 4> shape, Device& device) {
    const auto row = static_cast<int64_t>(row_bytes(Type::f32, shape[3]));
    buffer = device.allocate(static_cast<uint64_t>(shape[1] * row));
    Tensor made;
    made.type = Type::f32;
    made.buffer = buffer.get();
    made.shape = shape;
    made.stride = {shape[1] * row, row, row, sizeof(float)};
    return made;
}

// v_threshold: as in self_test_attention.cpp.
std::string attend_fused(const FusedSizes& sizes, float v_threshold, Device& device) {
    const int64_t heads = sizes.heads, dense = sizes.dense, packed = sizes.packed;
    const int64_t q_heads = heads * fused_group;
    CaseNumbers numbers;
    const auto drawn = [&numbers](int64_t of, int64_t rows) {
        CaseRows<float> made(Type::f32, of, rows, fused_size);
        for (float& x : made.values) x = numbers.number();
        return made;
    };
    CaseRows<float> packed_k = drawn(heads, packed), packed_v = drawn(heads, packed);
    CaseRows<uint8_t> k = stored_as<uint8_t>(Type::turbo4, packed_k), v = stored_as<uint8_t>(Type::turbo3, packed_v);
    CaseRows<float> q = drawn(q_heads, 1), new_k = drawn(heads, 1), new_v = drawn(heads, 1);
    return difference(device, FusedState(numbers, sizes), [&](Device& on, FusedState& state) {
        SlotAttend args;
        Sdpa& sdpa = args.attention;
        sdpa.segments.assign(2, state.dense.segment());
        Segment& second = sdpa.segments[1];
        second.k = k.tensor();
        second.v = v.tensor();
        second.tokens = state.tokens.tensor();
        second.importance = state.importance.tensor();
        SlotAppend& append = args.append.emplace();
        append.k = new_k.tensor();
        append.v = new_v.tensor();
        append.segment = sdpa.segments[0];
        append.first = dense / 2;
        append.token_id = position_of_token;
        std::unique_ptr<Buffer> scores, stats, weights;
        sdpa.q = q.tensor();
        sdpa.out = state.out.tensor();
        sdpa.scores_out = scratch_of(scores, {1, q_heads, 1, dense + packed}, on);
        sdpa.row_stats = scratch_of(stats, {1, q_heads, 1, 2}, on);
        sdpa.scores_mode = Scores::biased;
        sdpa.scale = 0.125f;
        sdpa.is_causal = true;
        sdpa.q_offset = position_of_token;
        sdpa.v_threshold = v_threshold;
        args.counted_queries = 1;
        args.importance.statistic = Statistic::probability_squared;
        args.importance.accumulation = Accumulation::decayed_sum;
        args.importance.decay = .99;
        args.output_sum = state.output_sum.tensor();
        const int64_t slots = whole_weight_slots(dense) + whole_weight_slots(packed);
        args.weights = scratch_of(weights, {1, 1, 1, fused_weight_floats(q_heads, heads, slots)}, on);
        on.attend(args);
        on.finish();
    });
}

} // namespace

std::string test_fused_attention(Device& device) {
    // Several splits of a head, and so many heads that one split has the keys of both segments.
    for (const FusedSizes& sizes : {FusedSizes{2, 60, 200}, FusedSizes{600, 3, 3}})
        for (const float v_threshold : {0.0f, 1e-30f})
            if (std::string wrong = attend_fused(sizes, v_threshold, device); !wrong.empty()) return wrong;
    return {};
}

} // namespace winnow::opencl
