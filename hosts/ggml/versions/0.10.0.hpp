// ggml 0.10.0 to 0.13.1: copies in two dimensions, graphs with a number, Q1_0.
#pragma once

namespace winnow::ggml {

constexpr Layout layout{
    .versions = "0.10.0 0.10.2 0.11.1 0.13.1",
    .buffer_interface = 88,
    .backend_interface = 128,
    .graph = 96,
    .capabilities = 4,
    .flash_attn_ext = 73,
};

using GraphOptimize = void (*)(ggml_backend_t, ggml_cgraph*);

constexpr std::array<ggml_type, 1> newer_types{GGML_TYPE_Q1_0};

inline void allow_mmap(ggml_backend_dev_caps&) {} // nobody asks

} // namespace winnow::ggml
