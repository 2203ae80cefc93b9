// A small attention, and what it has to be.
#include <algorithm>
#include <cstring>
#include <limits>

#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t q_heads = self_test_heads, keys = 200, head_size = 64; // a tile that is not full, and several splits
constexpr float logit_scale = 0.125f;

struct alignas(64) StoredRow {
    std::array<uint8_t, head_size * 2> bytes; // in q8_0 not all of them
};

struct AttentionCase {
    Type type;      // of keys and values: f16 or q8_0
    int64_t tokens; // which ask: one sees all keys, of several each sees one more than the one before
    std::vector<float> q, k, v, out;
    std::vector<StoredRow> stored_k, stored_v;

    AttentionCase(Type stored_type, int64_t query_tokens)
        : type(stored_type), tokens(query_tokens), q(q_heads * tokens * head_size), k(keys * head_size),
          v(keys * head_size), out(q.size()), stored_k(keys), stored_v(keys) {
        CaseNumbers numbers;
        for (float& x : q) x = numbers.number() * 2.3f;
        for (int64_t i = 0; i < keys * head_size; ++i) {
            k[i] = store(numbers, stored_k[i / head_size], i % head_size);
            v[i] = store(numbers, stored_v[i / head_size], i % head_size);
        }
    }

    // Draws an element.
    float store(CaseNumbers& numbers, StoredRow& row, int64_t e) const {
        if (type == Type::f16) {
            const float number = numbers.number();
            const uint16_t bits = half_bits(number);
            std::memcpy(&row.bytes.at(e * 2), &bits, sizeof bits);
            return number;
        }
        constexpr int64_t block = 32, block_bytes = 34;
        const float d = (e / block) % 2 == 0 ? 1 / 64.0f : 1 / 128.0f;
        const uint16_t bits = half_bits(d);
        const int32_t code = numbers.below(255) - 127;
        const int64_t at = e / block * block_bytes;
        std::memcpy(&row.bytes.at(at), &bits, sizeof bits);
        row.bytes.at(at + 2 + e % block) = static_cast<uint8_t>(static_cast<int8_t>(code));
        return d * static_cast<float>(code);
    }
};

Tensor case_tensor(Type type, void* data, std::array<int64_t, 4> shape, int64_t row) {
    Tensor made;
    made.type = type;
    made.data = static_cast<std::byte*>(data);
    made.shape = shape;
    made.stride = {row * shape[2] * shape[1], row * shape[2], row, static_cast<int64_t>(type_size(type))};
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
    constexpr int64_t float_row = head_size * sizeof(float);
    Sdpa args;
    args.q = case_tensor(Type::f32, problem.q.data(), {1, q_heads, problem.tokens, head_size}, float_row);
    Segment& stored = args.segments.emplace_back();
    stored.k = case_tensor(problem.type, problem.stored_k.data(), {1, 1, keys, head_size}, sizeof(StoredRow));
    stored.v = case_tensor(problem.type, problem.stored_v.data(), {1, 1, keys, head_size}, sizeof(StoredRow));
    args.out = case_tensor(Type::f32, problem.out.data(), {1, q_heads, problem.tokens, head_size}, float_row);
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

// By products of small matrices, where there are any, and without.
std::string attend_both_ways(Type type, Device& device) {
    AttentionCase problem(type, 1);
    for (const float v_threshold : {0.0f, 1e-30f})
        if (std::string wrong = attend(problem, v_threshold, device); !wrong.empty()) return wrong;
    return {};
}

} // namespace

std::string test_attention(Device& device) { return attend_both_ways(Type::f16, device); }

std::string test_packed_rows(Device& device) { return attend_both_ways(Type::q8_0, device); }

std::string test_prompt(Device& device) {
    AttentionCase problem(Type::f16, self_test_tokens);
    return attend(problem, 1e-30f, device); // else tensor cores may have it, whose blocks test_attention has seen
}

} // namespace winnow::opencl
