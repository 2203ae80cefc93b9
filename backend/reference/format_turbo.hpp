// Rotated rows: codes of Lloyd-Max centroids and one scale for the row. turbo4, turbo3, turbo2, and turbo3.5 and
// turbo2.5, whose first half of chunks has a bit more.
#pragma once

#include "device/format.hpp"

namespace winnow::reference {

// n is a multiple of 16.
void decode_turbo(Type type, const std::byte* row, int64_t n, double* x);
void encode_turbo(Type type, std::byte* row, int64_t n, const double* x, Norm norm);

} // namespace winnow::reference
