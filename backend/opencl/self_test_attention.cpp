// A small attention over rows of one KV head.
#include <limits>

#include "opencl/self_test_cases.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t q_heads = self_test_heads, keys = 200, head_size = 64; // a tile that is not full, and several splits
constexpr float logit_scale = 0.125f;

// Of several tokens the first sees so many keys less one: tiles of a prompt are then clear, mixed and not seen at all.
constexpr int64_t prompt_offset = 120;

// type: of keys and values. tokens: which ask; one sees all keys, of several each sees one more than the one before.
// v_threshold: more than 0, which products of small matrices leave to others, passes over nothing here.
std::string attend(Type type, int64_t tokens, float v_threshold, Device& device) {
    CaseNumbers numbers;
    CaseRows<float> q(Type::f32, q_heads, tokens, head_size), k(Type::f32, 1, keys, head_size), v = k;
    for (CaseRows<float>* rows : {&q, &k, &v})
        for (float& x : rows->values) x = numbers.number() * (rows == &q ? 2.3f : 1);
    CaseRows<uint8_t> stored_k = stored_as<uint8_t>(type, k), stored_v = stored_as<uint8_t>(type, v);
    const CaseRows<float> out(Type::f32, q_heads, tokens, head_size, std::numeric_limits<float>::quiet_NaN());
    const auto run = [&](Device& on, CaseRows<float>& to) {
        Sdpa args;
        args.q = q.tensor();
        Segment& stored = args.segments.emplace_back();
        stored.k = stored_k.tensor();
        stored.v = stored_v.tensor();
        args.out = to.tensor();
        args.scale = logit_scale;
        args.v_threshold = v_threshold;
        args.is_causal = tokens > 1;
        args.q_offset = args.is_causal ? prompt_offset : 0;
        on.launch(args, false);
    };
    return difference(device, out, run, "element", 1e-4); // values are up to 2
}

// By products of small matrices, where there are any, and without.
std::string attend_both_ways(Type type, Device& device) {
    const std::string wrong = attend(type, 1, 0.0f, device);
    return wrong.empty() ? attend(type, 1, 1e-30f, device) : wrong;
}

} // namespace

std::string test_attention(Device& device) { return attend_both_ways(Type::f16, device); }

std::string test_packed_rows(Device& device) { return attend_both_ways(Type::q8_0, device); }

std::string test_prompt(Device& device) {
    // Else tensor cores may have it, whose blocks test_attention has seen.
    return attend(Type::f16, self_test_tokens, 1e-30f, device);
}

} // namespace winnow::opencl
