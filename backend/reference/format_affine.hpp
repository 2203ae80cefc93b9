// Groups with a scale and a bias, the numbers as mx.quantize (mode "affine") has them for float16 input.
#pragma once

#include "device/format.hpp"

namespace winnow::reference {

bool is_affine(Type type);

// n is a multiple of the type's group.
void decode_affine(Type type, const std::byte* row, int64_t n, double* x);
void encode_affine(Type type, std::byte* row, int64_t n, const double* x);

} // namespace winnow::reference
