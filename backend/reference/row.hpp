// A row of any storage format as numbers.
#pragma once

#include "device/device.hpp"

namespace winnow::reference {

// n elements: a multiple of what the type asks for. Decoding is exact but for the rotation of turbo formats; encoding
// rounds once. norm is for turbo formats.
void decode_row(Type type, const std::byte* row, int64_t n, double* x);
void encode_row(Type type, std::byte* row, int64_t n, const double* x, Norm norm);

// Throws Error(UNSUPPORTED) unless rows of the tensor can be decoded and encoded.
void require_rows(const Tensor& tensor, const char* name);

} // namespace winnow::reference
