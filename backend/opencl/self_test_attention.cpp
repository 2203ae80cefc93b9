// A small attention, and what it has to be.
#include <algorithm>
#include <limits>

#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t q_heads = self_test_heads, keys = 200, head_size = 64; // a tile that is not full, and several splits
constexpr float logit_scale = 0.125f;

struct alignas(64) HalfRow {
    std::array<uint16_t, head_size> bits;
};

struct AttentionCase {
    int64_t tokens; // which ask: one sees all keys, of several each sees one more than the one before
    std::vector<float> q, k, v, out;
    std::vector<HalfRow> stored_k, stored_v;

    explicit AttentionCase(int64_t query_tokens)
        : tokens(query_tokens), q(q_heads * tokens * head_size), k(keys * head_size), v(keys * head_size),
          out(q.size()), stored_k(keys), stored_v(keys) {
        CaseNumbers numbers;
        for (float& x : q) x = numbers.number() * 2.3f;
        for (int64_t i = 0; i < keys * head_size; ++i) {
            k[i] = numbers.number();
            v[i] = numbers.number();
            stored_k[i / head_size].bits.at(i % head_size) = half_bits(k[i]);
            stored_v[i / head_size].bits.at(i % head_size) = half_bits(v[i]);
        }
    }
};

Tensor case_tensor(Type type, void* data, std::array<int64_t, 4> shape, int64_t element_bytes) {
    Tensor made;
    made.type = type;
    made.data = static_cast<std::byte*>(data);
    made.shape = shape;
    const int64_t row = shape[3] * element_bytes;
    made.stride = {row * shape[2] * shape[1], row * shape[2], row, element_bytes};
    return made;
}

// Of several tokens the first sees so many keys less one: tiles of a prompt are then clear, mixed and not seen at all.
constexpr int64_t prompt_offset = 120;

// All elements of a row, which is a head's token.
std::vector<double> expected(const AttentionCase& problem, int64_t row) {
    const int64_t seen = problem.tokens == 1 ? keys : prompt_offset + row % problem.tokens + 1;
    std::vector<double> weights(seen), out(head_size);
    for (int64_t key = 0; key < seen; ++key)
        for (int64_t i = 0; i < head_size; ++i)
            weights[key] +=
                static_cast<double>(problem.q[row * head_size + i]) * problem.k[key * head_size + i] * logit_scale;
    const double most = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    for (int64_t key = 0; key < seen; ++key)
        for (int64_t e = 0; e < head_size; ++e) out[e] += weights[key] / sum * problem.v[key * head_size + e];
    return out;
}

// v_threshold: more than 0, which products of small matrices leave to others, passes over nothing here.
std::string attend(AttentionCase& problem, float v_threshold, Device& device) {
    std::fill(problem.out.begin(), problem.out.end(), std::numeric_limits<float>::quiet_NaN());
    Sdpa args;
    args.q = case_tensor(Type::f32, problem.q.data(), {1, q_heads, problem.tokens, head_size}, sizeof(float));
    args.k = case_tensor(Type::f16, problem.stored_k.data(), {1, 1, keys, head_size}, sizeof(uint16_t));
    args.v = case_tensor(Type::f16, problem.stored_v.data(), {1, 1, keys, head_size}, sizeof(uint16_t));
    args.out = case_tensor(Type::f32, problem.out.data(), {1, q_heads, problem.tokens, head_size}, sizeof(float));
    args.scale = logit_scale;
    args.v_threshold = v_threshold;
    args.is_causal = problem.tokens > 1;
    args.q_offset = args.is_causal ? prompt_offset : 0;
    device.launch(args, false);
    device.finish();
    for (int64_t row = 0; row < q_heads * problem.tokens; ++row) {
        const std::vector<double> right = expected(problem, row);
        for (int64_t e = 0; e < head_size; ++e) {
            const double found = problem.out[row * head_size + e];
            if (std::abs(found - right[e]) < 1e-4) continue; // values are up to 2
            std::string wrong = "element " + std::to_string(e) + " of head " + std::to_string(row / problem.tokens);
            if (problem.tokens > 1) wrong += ", token " + std::to_string(row % problem.tokens) + ",";
            return wrong + " is " + std::to_string(found) + ", and should be " + std::to_string(right[e]);
        }
    }
    return {};
}

} // namespace

std::string test_attention(Device& device) {
    AttentionCase problem(1);
    for (const float v_threshold : {0.0f, 1e-30f})
        if (std::string wrong = attend(problem, v_threshold, device); !wrong.empty()) return wrong;
    return {};
}

std::string test_prompt(Device& device) {
    AttentionCase problem(self_test_tokens);
    return attend(problem, 1e-30f, device); // else tensor cores may have it, whose blocks test_attention has seen
}

} // namespace winnow::opencl
