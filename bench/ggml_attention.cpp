// ggml's flash attention on the CPU, over the same K and V.
#include <cmath>
#include <stdexcept>

#include "attention.hpp"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace winnow::bench {
namespace {

// GGML_TYPE_COUNT where ggml has no such format.
ggml_type ggml_type_of(uint32_t type) {
    switch (type) {
    case WINNOW_TYPE_F32: return GGML_TYPE_F32;
    case WINNOW_TYPE_F16: return GGML_TYPE_F16;
    case WINNOW_TYPE_BF16: return GGML_TYPE_BF16;
    case WINNOW_TYPE_Q8_0: return GGML_TYPE_Q8_0;
    case WINNOW_TYPE_Q5_1: return GGML_TYPE_Q5_1;
    case WINNOW_TYPE_Q5_0: return GGML_TYPE_Q5_0;
    case WINNOW_TYPE_Q4_1: return GGML_TYPE_Q4_1;
    case WINNOW_TYPE_Q4_0: return GGML_TYPE_Q4_0;
    case WINNOW_TYPE_IQ4_NL: return GGML_TYPE_IQ4_NL;
    default: return GGML_TYPE_COUNT;
    }
}

} // namespace

struct GgmlAttention::State {
    ggml_context* context = nullptr;
    ggml_backend_t backend = nullptr;
    ggml_cgraph* graph = nullptr;

    ~State() {
        if (backend) ggml_backend_free(backend);
        if (context) ggml_free(context);
    }
};

bool GgmlAttention::reads(uint32_t k_type, uint32_t v_type) {
    return ggml_type_of(k_type) != GGML_TYPE_COUNT && ggml_type_of(v_type) != GGML_TYPE_COUNT;
}

GgmlAttention::GgmlAttention(const Attention& problem, bool is_causal, uint32_t threads)
    : state_(std::make_unique<State>()) {
    const AttentionSizes& sizes = problem.sizes();
    const int64_t result = sizes.q_heads() * sizes.q_len * sizes.head_size * static_cast<int64_t>(sizeof(float));
    const int64_t mask_size = sizes.q_len * sizes.kv_len * 2;
    ggml_init_params params{};
    params.mem_size = static_cast<size_t>(result + mask_size) + (8u << 20);
    state_->context = ggml_init(params);
    state_->backend = ggml_backend_cpu_init();
    if (state_->context == nullptr || state_->backend == nullptr) throw std::runtime_error("ggml has no CPU backend");
    ggml_backend_cpu_set_n_threads(state_->backend, static_cast<int>(threads));

    ggml_context* context = state_->context;
    const auto tensor = [&](ggml_type type, int64_t tokens, int64_t heads, const Memory& memory) {
        ggml_set_no_alloc(context, true);
        ggml_tensor* made = ggml_new_tensor_4d(context, type, sizes.head_size, tokens, heads, 1);
        made->data = memory.data();
        ggml_set_no_alloc(context, false);
        return made;
    };
    ggml_tensor* q = tensor(GGML_TYPE_F32, sizes.q_len, sizes.q_heads(), problem.q());
    ggml_tensor* k = tensor(ggml_type_of(sizes.k_type), sizes.kv_len, sizes.kv_heads, problem.k());
    ggml_tensor* v = tensor(ggml_type_of(sizes.v_type), sizes.kv_len, sizes.kv_heads, problem.v());
    ggml_tensor* mask = nullptr;
    if (is_causal) {
        mask = ggml_new_tensor_4d(context, GGML_TYPE_F16, sizes.kv_len, sizes.q_len, 1, 1);
        ggml_fp16_t* element = static_cast<ggml_fp16_t*>(mask->data);
        for (int64_t i = 0; i < sizes.q_len; ++i) {
            for (int64_t j = 0; j < sizes.kv_len; ++j) {
                *element++ = ggml_fp32_to_fp16(j <= sizes.kv_len - sizes.q_len + i ? 0.0f : -INFINITY);
            }
        }
    }
    const float scale = 1.0f / std::sqrt(static_cast<float>(sizes.head_size));
    ggml_tensor* out = ggml_flash_attn_ext(context, q, k, v, mask, scale, 0.0f, 0.0f);
    state_->graph = ggml_new_graph(context);
    ggml_build_forward_expand(state_->graph, out);
}

GgmlAttention::~GgmlAttention() = default;

void GgmlAttention::run() {
    if (ggml_backend_graph_compute(state_->backend, state_->graph) != GGML_STATUS_SUCCESS) {
        throw std::runtime_error("ggml_backend_graph_compute failed");
    }
}

} // namespace winnow::bench
