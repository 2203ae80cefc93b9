// Calls cache_step as a host does.
#include "attention_check.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <memory>
#include <stdexcept>

namespace winnow::tools {

namespace {

constexpr int64_t q_heads = 4, kv_heads = 2, head_size = 64, context_tokens = 256, prompt = 40, decoded = 3;
constexpr const char* config = "winnow:residual=0"; // no token is stored unpacked because it is new

// Numbers from -1 to 1: a linear congruential generator (Numerical Recipes).
class Numbers {
public:
    std::vector<float> draw(int64_t heads, int64_t tokens) {
        std::vector<float> all(static_cast<size_t>(heads * tokens * head_size));
        for (float& each : all) {
            state_ = state_ * 1664525U + 1013904223U;
            each = static_cast<float>(state_ >> 8U) / static_cast<float>(1U << 23U) - 1;
        }
        return all;
    }

private:
    uint32_t state_ = 1;
};

winnow_tensor tensor_over(std::vector<float>& data, int64_t heads, int64_t tokens) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = WINNOW_TYPE_F32;
    tensor.data = data.data();
    const int64_t shape[4] = {1, heads, tokens, head_size};
    int64_t stride = sizeof(float);
    for (int axis = 3; axis >= 0; --axis) {
        tensor.shape[axis] = shape[axis];
        tensor.stride[axis] = stride;
        stride *= shape[axis];
    }
    return tensor;
}

void WINNOW_CALL add_warning(void* warnings, int32_t, const char* text) {
    static_cast<std::vector<std::string>*>(warnings)->emplace_back(text);
}

class Attention {
public:
    Attention(const OpenBackend& backend, const std::string& device, std::vector<std::string>& warnings)
        : api_(backend.api()), caches_(backend.caches()), cache_(nullptr, caches_.destroy) {
        winnow_context_desc desc{};
        desc.struct_size = sizeof desc;
        desc.device = device.c_str();
        desc.log = add_warning;
        desc.log_user_data = &warnings;
        context_ = backend.make_context(desc);
        winnow_cache_desc shape{};
        shape.struct_size = sizeof shape;
        shape.config = config;
        shape.layers = 1;
        shape.q_num_heads = q_heads;
        shape.kv_num_heads = kv_heads;
        shape.head_size = head_size;
        shape.context = context_tokens;
        winnow_cache* cache = nullptr;
        expect(caches_.create(context_.get(), &shape, &cache));
        cache_.reset(cache);
    }

    // Appends so many tokens and lets them attend.
    std::vector<float> step(Numbers& numbers, int64_t tokens) {
        std::vector<float> k = numbers.draw(kv_heads, tokens), v = numbers.draw(kv_heads, tokens),
                           q = numbers.draw(q_heads, tokens), out(q.size());
        const winnow_tensor tensors[] = {tensor_over(k, kv_heads, tokens), tensor_over(v, kv_heads, tokens),
                                         tensor_over(q, q_heads, tokens), tensor_over(out, q_heads, tokens)};
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.k = &tensors[0];
        desc.v = &tensors[1];
        desc.q = &tensors[2];
        desc.out = &tensors[3];
        expect(caches_.step(cache_.get(), &desc, nullptr));
        expect(api_.finish(context_.get()));
        return out;
    }

private:
    void expect(int32_t status) const {
        if (status == WINNOW_OK) return;
        throw std::runtime_error(std::string(api_.status_name(status)) + ": " + api_.context_message(context_.get()));
    }

    const winnow_api& api_;
    const winnow_cache_api& caches_;
    OwnedContext context_;
    std::unique_ptr<winnow_cache, int32_t(WINNOW_CALL*)(winnow_cache*)> cache_;
};

} // namespace

AttentionRun run_attention(const OpenBackend& backend, const std::string& device) {
    AttentionRun run;
    Attention attention(backend, device, run.warnings);
    Numbers numbers;
    for (int64_t token = 0; token <= decoded; ++token) {
        const std::vector<float> out = attention.step(numbers, token == 0 ? prompt : 1);
        run.out.insert(run.out.end(), out.begin(), out.end());
    }
    return run;
}

double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
    constexpr double infinity = std::numeric_limits<double>::infinity();
    if (a.size() != b.size()) return infinity;
    double largest = 0;
    for (size_t i = 0; i < a.size(); ++i) {
        const double difference = std::fabs(static_cast<double>(a[i]) - b[i]);
        largest = std::isfinite(difference) ? std::max(largest, difference) : infinity;
    }
    return largest;
}

} // namespace winnow::tools
