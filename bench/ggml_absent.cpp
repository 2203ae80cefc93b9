// Stands for ggml_attention.cpp where there is no ggml to compare with.
#include <stdexcept>

#include "attention.hpp"

namespace winnow::bench {

struct GgmlAttention::State {};

bool GgmlAttention::reads(uint32_t, uint32_t) { return false; }

GgmlAttention::GgmlAttention(const Attention&, bool, uint32_t) { throw std::logic_error("built without ggml"); }

GgmlAttention::~GgmlAttention() = default;

void GgmlAttention::run() {}

} // namespace winnow::bench
