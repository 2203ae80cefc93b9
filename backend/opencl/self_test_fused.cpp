// The fused attention of one token as the policy "winnow" has it: the token comes into a dense segment in f16, beside
// one of keys in turbo4 and values in turbo3; its query attends over both, by their slot maps, and what that showed is
// accumulated into the importance of each slot.
#include <algorithm>
#include <limits>

#include "opencl/self_test_cases.hpp"
#include "opencl/self_test_turbo.hpp"

namespace winnow::opencl {
namespace {

struct FusedSizes {
    int64_t heads, dense, packed; // KV heads, and slots of the segments
};
constexpr int64_t fused_group = 4, fused_size = 64; // query heads of a KV head, and their elements
constexpr int64_t position_of_token = 5000;
constexpr int32_t position_after = 6000; // which a query does not see
constexpr double fused_decay = .99;
constexpr float fused_scale = 0.125f;

// Keys or values of a packed segment, and the numbers that they read as.
struct PackedSide {
    CaseRows<uint8_t> rows;
    std::vector<double> numbers;

    PackedSide(CaseNumbers& drawn, Type type, int bits, const FusedSizes& sizes)
        : rows(type, sizes.heads, sizes.packed, fused_size) {
        for (int64_t row = 0; row < sizes.heads * sizes.packed; ++row) {
            TurboRow turbo{bits, {}, drawn.below(2) == 0 ? 0.5f : 1.25f};
            for (int64_t e = 0; e < fused_size; ++e)
                turbo.codes.push_back(static_cast<uint32_t>(drawn.below(1 << bits)));
            turbo.store(&rows.at(0, row, 0));
            const std::vector<double> read = turbo.numbers();
            numbers.insert(numbers.end(), read.begin(), read.end());
        }
    }
    double at(int64_t head, int64_t slot, int64_t e) const {
        return numbers[static_cast<size_t>((head * rows.rows + slot) * fused_size + e)];
    }
};

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
        return first_of({dense.tokens.compared("dense slot", right.dense.tokens), dense.k.compared("k", right.dense.k),
                         dense.v.compared("v", right.dense.v), tokens.compared("packed slot", right.tokens),
                         out.compared("element", right.out, 1e-4), // up to 6
                         output_sum.compared("sum of outputs", right.output_sum, 4e-4),
                         dense.importance.compared("importance of dense slot", right.dense.importance, 1e-9, 1e-4),
                         importance.compared("importance of packed slot", right.importance, 1e-9, 1e-4)});
    }
};

struct FusedCase {
    FusedSizes sizes;
    CaseNumbers drawn;
    PackedSide k, v;
    CaseRows<float> q, new_k, new_v;
    FusedState before, right;
    int64_t slot; // that the token comes to

    explicit FusedCase(const FusedSizes& of)
        : sizes(of), k(drawn, Type::turbo4, 4, of), v(drawn, Type::turbo3, 3, of),
          q(Type::f32, of.heads * fused_group, 1, fused_size), new_k(Type::f32, of.heads, 1, fused_size), new_v(new_k),
          before(drawn, of), right(before), slot(of.dense / 2) {
        for (CaseRows<float>* rows : {&q, &new_k, &new_v})
            for (float& x : rows->values) x = drawn.number();
        for (int64_t head = 0; head < sizes.heads; ++head) expect(head);
    }

    // A key or value of either segment; slots of the packed one come after the others.
    double element(bool is_value, int64_t head, int64_t at, int64_t e) {
        if (at >= sizes.dense) return (is_value ? v : k).at(head, at - sizes.dense, e);
        if (at == slot) return (is_value ? new_v : new_k).at(head, 0, e);
        return half_number((is_value ? before.dense.v : before.dense.k).at(head, at, e));
    }

    void expect(int64_t head) {
        for (int64_t e = 0; e < fused_size; ++e) {
            right.dense.k.at(head, slot, e) = half_bits(new_k.at(head, 0, e));
            right.dense.v.at(head, slot, e) = half_bits(new_v.at(head, 0, e));
        }
        right.dense.tokens.at(head, 0, slot) = static_cast<int32_t>(position_of_token);
        right.dense.importance.at(head, 0, slot) = 0;

        std::vector<int64_t> seen;
        for (int64_t at = 0; at < sizes.dense + sizes.packed; ++at) {
            const int32_t token =
                at < sizes.dense ? right.dense.tokens.at(head, 0, at) : right.tokens.at(head, 0, at - sizes.dense);
            if (token >= 0 && (token & ~anchor_flag) <= position_of_token) seen.push_back(at);
        }
        std::vector<double> squares(seen.size());
        for (int64_t row = head * fused_group; row < (head + 1) * fused_group; ++row)
            expect_row(head, row, seen, squares);
        for (size_t i = 0; i < seen.size(); ++i) {
            float& importance = seen[i] < sizes.dense ? right.dense.importance.at(head, 0, seen[i])
                                                      : right.importance.at(head, 0, seen[i] - sizes.dense);
            importance = static_cast<float>(fused_decay * importance + squares[i] / fused_group);
        }
    }
    void expect_row(int64_t head, int64_t row, const std::vector<int64_t>& seen, std::vector<double>& squares) {
        std::vector<double> weights(seen.size()), sums(fused_size);
        for (size_t i = 0; i < seen.size(); ++i)
            for (int64_t e = 0; e < fused_size; ++e)
                weights[i] += fused_scale * q.at(row, 0, e) * element(false, head, seen[i], e);
        const double most = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - most);
        for (size_t i = 0; i < seen.size(); ++i) {
            const double probability = weights[i] / sum;
            squares[i] += probability * probability;
            for (int64_t e = 0; e < fused_size; ++e)
                sums[static_cast<size_t>(e)] += probability * element(true, head, seen[i], e);
        }
        for (int64_t e = 0; e < fused_size; ++e) {
            right.out.at(row, 0, e) = static_cast<float>(sums[static_cast<size_t>(e)]);
            right.output_sum.at(head, 0, e) += right.out.at(row, 0, e);
        }
    }
};

// v_threshold: as in self_test_attention.cpp.
std::string attend_fused(FusedCase& problem, float v_threshold, Device& device) {
    const auto& [heads, dense, packed] = problem.sizes;
    FusedState state = problem.before;
    SlotAttend args;
    args.attention.segments.assign(2, state.dense.segment());
    Segment& second = args.attention.segments[1];
    second.k = problem.k.rows.tensor();
    second.v = problem.v.rows.tensor();
    second.tokens = state.tokens.tensor();
    second.importance = state.importance.tensor();
    SlotAppend& append = args.append.emplace();
    append.k = problem.new_k.tensor();
    append.v = problem.new_v.tensor();
    append.segment = args.attention.segments[0];
    append.first = problem.slot;
    append.token_id = position_of_token;

    // Memory of the device's own: weights have to be where a buffer begins.
    const auto scratch = [&](std::unique_ptr<Buffer>& buffer, std::array<int64_t, 4> shape) {
        const auto row = static_cast<int64_t>(row_bytes(Type::f32, shape[3]));
        buffer = device.allocate(static_cast<uint64_t>(shape[1] * row));
        Tensor made;
        made.type = Type::f32;
        made.buffer = buffer.get();
        made.shape = shape;
        made.stride = {shape[1] * row, row, row, sizeof(float)};
        return made;
    };
    std::unique_ptr<Buffer> scores, stats, weights;
    Sdpa& sdpa = args.attention;
    sdpa.q = problem.q.tensor();
    sdpa.out = state.out.tensor();
    sdpa.scores_out = scratch(scores, {1, heads * fused_group, 1, dense + packed});
    sdpa.row_stats = scratch(stats, {1, heads * fused_group, 1, 2});
    sdpa.scores_mode = Scores::biased;
    sdpa.scale = fused_scale;
    sdpa.is_causal = true;
    sdpa.q_offset = position_of_token;
    sdpa.v_threshold = v_threshold;
    args.counted_queries = 1;
    args.importance.statistic = Statistic::probability_squared;
    args.importance.accumulation = Accumulation::decayed_sum;
    args.importance.decay = fused_decay;
    args.output_sum = state.output_sum.tensor();
    args.weights = scratch(weights, {1, 1, 1,
                                     fused_weight_floats(heads * fused_group, heads,
                                                         whole_weight_slots(dense) + whole_weight_slots(packed))});
    device.attend(args);
    device.finish();
    return state.compared(problem.right);
}

} // namespace

std::string test_fused_attention(Device& device) {
    // Several splits of a head, and so many heads that one split has the keys of both segments.
    for (const FusedSizes& sizes : {FusedSizes{2, 60, 200}, FusedSizes{600, 3, 3}}) {
        FusedCase problem(sizes);
        for (const float v_threshold : {0.0f, 1e-30f})
            if (std::string wrong = attend_fused(problem, v_threshold, device); !wrong.empty()) return wrong;
    }
    return {};
}

} // namespace winnow::opencl
