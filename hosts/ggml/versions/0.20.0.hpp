// ggml 0.20.0: a device says whether it lets llama.cpp map files.
#pragma once

namespace winnow::ggml {

constexpr Layout layout{
    .versions = "0.20.0",
    .buffer_interface = 88,
    .backend_interface = 128,
    .graph = 96,
    .capabilities = 5,
    .flash_attn_ext = 74,
};

using GraphOptimize = void (*)(ggml_backend_t, ggml_cgraph*);

constexpr std::array<ggml_type, 2> newer_types{GGML_TYPE_Q1_0, GGML_TYPE_Q2_0};

inline void allow_mmap(ggml_backend_dev_caps& capabilities) { capabilities.mmap_support = true; }

} // namespace winnow::ggml
