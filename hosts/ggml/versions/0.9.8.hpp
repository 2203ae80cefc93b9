// ggml 0.9.8 to 0.9.11: the interfaces of buffers and backends without copies in two dimensions, graphs without a
// number.
#pragma once

namespace winnow::ggml {

constexpr Layout layout{
    .versions = "0.9.8 0.9.11",
    .buffer_interface = 72,
    .backend_interface = 112,
    .graph = 88,
    .capabilities = 4,
    .flash_attn_ext = 73,
};

using GraphOptimize = void (*)(ggml_backend_t, ggml_cgraph*);

constexpr std::array<ggml_type, 0> newer_types{};

inline void allow_mmap(ggml_backend_dev_caps&) {} // nobody asks

} // namespace winnow::ggml
