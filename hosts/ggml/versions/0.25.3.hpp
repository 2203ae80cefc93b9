// ggml 0.25.3: graph_optimize has a third parameter.
#pragma once

namespace winnow::ggml {

constexpr Layout layout{
    .versions = "0.25.3",
    .buffer_interface = 88,
    .backend_interface = 128,
    .graph = 96,
    .capabilities = 5,
    .flash_attn_ext = 74,
};

using GraphOptimize = void (*)(ggml_backend_t, ggml_cgraph*, ggml_backend_graph_optimize_params*);

constexpr std::array<ggml_type, 2> newer_types{GGML_TYPE_Q1_0, GGML_TYPE_Q2_0};

inline void allow_mmap(ggml_backend_dev_caps& capabilities) { capabilities.mmap_support = true; }

} // namespace winnow::ggml
