// ggml's blocks of 32: q8_0, q5_1, q5_0, q4_1, q4_0 and iq4_nl, bit for bit as its quantize_row_*_ref write them.
#pragma once

#include "device/format.hpp"

namespace winnow::reference {

bool is_ggml(Type type);

// n is a multiple of 32.
void decode_ggml(Type type, const std::byte* row, int64_t n, double* x);
void encode_ggml(Type type, std::byte* row, int64_t n, const double* x);

} // namespace winnow::reference
