// Blocks of 32 elements, of which the largest are there: sparse16 and sparse8 (docs/formats.md).
#pragma once

#include "device/format.hpp"

namespace winnow::reference {

bool is_sparse(Type type);

// n is a multiple of 32.
void decode_sparse(Type type, const std::byte* row, int64_t n, double* x);
void encode_sparse(Type type, std::byte* row, int64_t n, const double* x);

} // namespace winnow::reference
