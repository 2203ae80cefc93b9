// ggml 0.15.1 to 0.15.3: a new operation before FLASH_ATTN_EXT.
#pragma once

namespace winnow::ggml {

constexpr Layout layout{
    .versions = "0.15.1 0.15.2 0.15.3",
    .buffer_interface = 88,
    .backend_interface = 128,
    .graph = 96,
    .capabilities = 4,
    .flash_attn_ext = 74,
};

using GraphOptimize = void (*)(ggml_backend_t, ggml_cgraph*);

constexpr std::array<ggml_type, 1> newer_types{GGML_TYPE_Q1_0};

inline void allow_mmap(ggml_backend_dev_caps&) {} // nobody asks

} // namespace winnow::ggml
