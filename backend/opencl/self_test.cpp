// A small attention, and what it has to be.
#include "opencl/self_test.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "opencl/runtime.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t heads = 4, keys = 200, size = 64; // a tile that is not full, and several splits
constexpr int64_t tokens = 9;                       // of a prompt: a block of rows, and one that is not full
constexpr float scale = 0.125f;

// Numbers that f16 has whole.
struct Half {
    float number;
    uint16_t bits;
};
constexpr std::array<Half, 8> halves{{{0.0f, 0},
                                      {0.125f, 0x3000},
                                      {0.25f, 0x3400},
                                      {0.5f, 0x3800},
                                      {0.75f, 0x3a00},
                                      {1.0f, 0x3c00},
                                      {1.5f, 0x3e00},
                                      {2.0f, 0x4000}}};

class Numbers {
public:
    Half draw() {
        state_ = state_ * 1664525u + 1013904223u;
        Half half = halves[state_ >> 28 & 7];
        if ((state_ >> 31) != 0) half = {-half.number, static_cast<uint16_t>(half.bits | 0x8000)};
        return half;
    }

private:
    uint32_t state_ = 1;
};

struct alignas(64) Row {
    std::array<uint16_t, size> bits;
};

struct Problem {
    int64_t q_len;
    std::vector<float> q, k, v, out;
    std::vector<Row> stored_k, stored_v;

    explicit Problem(int64_t query_tokens)
        : q_len(query_tokens), q(heads * q_len * size), k(keys * size), v(keys * size), out(q.size()), stored_k(keys),
          stored_v(keys) {
        Numbers numbers;
        for (float& x : q) x = numbers.draw().number * 2.3f;
        for (int64_t i = 0; i < keys * size; ++i) {
            const Half of_k = numbers.draw(), of_v = numbers.draw();
            k[i] = of_k.number;
            v[i] = of_v.number;
            stored_k[i / size].bits[i % size] = of_k.bits;
            stored_v[i / size].bits[i % size] = of_v.bits;
        }
    }
};

Tensor tensor(Type type, void* data, std::array<int64_t, 4> shape, int64_t element_bytes) {
    Tensor made;
    made.type = type;
    made.data = static_cast<std::byte*>(data);
    made.shape = shape;
    const int64_t row = shape[3] * element_bytes;
    made.stride = {row * shape[2] * shape[1], row * shape[2], row, element_bytes};
    return made;
}

// Element e of a row: a head's token.
double expected(const Problem& problem, int64_t row, int64_t e) {
    std::array<double, keys> logits{};
    for (int64_t key = 0; key < keys; ++key)
        for (int64_t i = 0; i < size; ++i)
            logits[key] += static_cast<double>(problem.q[row * size + i]) * problem.k[key * size + i] * scale;
    const double most = *std::max_element(logits.begin(), logits.end());
    double sum = 0, value = 0;
    for (int64_t key = 0; key < keys; ++key) {
        const double weight = std::exp(logits[key] - most);
        sum += weight;
        value += weight * problem.v[key * size + e];
    }
    return value / sum;
}

// v_threshold: more than 0, which products of small matrices leave to others, passes over nothing here.
std::string test_with(Problem& problem, float v_threshold, const Attend& attend) {
    std::fill(problem.out.begin(), problem.out.end(), std::numeric_limits<float>::quiet_NaN());
    Sdpa args;
    args.q = tensor(Type::f32, problem.q.data(), {1, heads, problem.q_len, size}, sizeof(float));
    args.k = tensor(Type::f16, problem.stored_k.data(), {1, 1, keys, size}, sizeof(uint16_t));
    args.v = tensor(Type::f16, problem.stored_v.data(), {1, 1, keys, size}, sizeof(uint16_t));
    args.out = tensor(Type::f32, problem.out.data(), {1, heads, problem.q_len, size}, sizeof(float));
    args.scale = scale;
    args.v_threshold = v_threshold;
    attend(args);
    for (int64_t row = 0; row < heads * problem.q_len; ++row)
        for (int64_t e = 0; e < size; ++e) {
            const double right = expected(problem, row, e), found = problem.out[row * size + e];
            if (std::abs(found - right) < 1e-4) continue; // values are up to 2
            std::string wrong = "element " + std::to_string(e) + " of head " + std::to_string(row / problem.q_len);
            if (problem.q_len > 1) wrong += ", token " + std::to_string(row % problem.q_len) + ",";
            return wrong + " is " + std::to_string(found) + ", and should be " + std::to_string(right);
        }
    return {};
}

} // namespace

std::string test_attention(const Attend& attend, bool is_prompt) {
    Problem problem(is_prompt ? tokens : 1);
    try {
        for (const float v_threshold : {0.0f, 1e-30f}) {
            if (is_prompt && v_threshold == 0.0f) continue; // else the prompts of tensor cores, tested by their steps
            if (std::string wrong = test_with(problem, v_threshold, attend); !wrong.empty()) return wrong;
        }
    } catch (const Error& error) {
        // What was forced or is not there says nothing of the kernel.
        if (error.status() == WINNOW_ERROR_UNSUPPORTED || error.status() == WINNOW_ERROR_OUT_OF_MEMORY) throw;
        return error.what();
    }
    return {};
}

void leave_out_wrong_shapes(Capabilities& capabilities, const VariantOptions& forced, const Log& log,
                            const Attend& attend) {
    const bool is_forced = !forced.shape.empty() || !forced.kernel.empty() || !forced.tensor.empty() ||
                           forced.subgroup != 0 || forced.launches != 0 || forced.splits != 0;
    if (is_forced) return;
    for (;;) {
        const Variant& variant = choose_variant("sdpa", capabilities, forced, 1, heads);
        if (variant.shape == "cpu") break;
        const std::string wrong = test_attention(attend);
        if (wrong.empty()) break;
        std::string what(variant.shape);
        if (variant.shape == "subgroup" && capabilities.has_tensor_cores) {
            what = "tensor cores";
            capabilities.has_tensor_cores = false;
        } else if (variant.shape == "subgroup") {
            capabilities.subgroup_sizes = 0;
        } else {
            capabilities.attends_in_groups = false;
        }
        std::string warning = "this driver gets attention wrong with ";
        warning.append(what).append(", which is not used for it: ").append(wrong);
        log(WINNOW_LOG_WARNING, warning);
    }
    if (choose_variant("sdpa", capabilities, forced, tokens, heads * tokens).fewest_rows <= 1) return;
    if (const std::string wrong = test_attention(attend, true); !wrong.empty()) {
        capabilities.prompts_in_groups = false;
        log(WINNOW_LOG_WARNING,
            "this driver gets attention wrong with many query tokens at once, which are not used for it: " + wrong);
    }
}

} // namespace winnow::opencl
