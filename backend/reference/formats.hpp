// The families of packed formats. n, the elements of a row, is a multiple of the type's row_multiple.
#pragma once

#include "device/format.hpp"

namespace winnow::reference {

// ggml's blocks of 32, bit for bit as its quantize_row_*_ref write them.
inline bool is_ggml(Type type) { return type >= Type::q8_0 && type <= Type::iq4_nl; }
void decode_ggml(Type type, const std::byte* row, int64_t n, double* x);
void encode_ggml(Type type, std::byte* row, int64_t n, const double* x);

// Groups with a scale and a bias, the numbers as mx.quantize (mode "affine") has them for float16 input.
inline bool is_affine(Type type) { return type >= Type::affine8_g32 && type <= Type::affine4_g128; }
void decode_affine(Type type, const std::byte* row, int64_t n, double* x);
void encode_affine(Type type, std::byte* row, int64_t n, const double* x);

// Blocks of 32 elements, of which the largest are there: sparse16 and sparse8 (docs/formats.md).
inline bool is_sparse(Type type) { return type == Type::sparse16 || type == Type::sparse8; }
void decode_sparse(Type type, const std::byte* row, int64_t n, double* x);
void encode_sparse(Type type, std::byte* row, int64_t n, const double* x);

// Rotated rows, the others that are packed: codes of Lloyd-Max centroids and one scale for the row. The first half of
// chunks of turbo3.5 and turbo2.5 has a bit more.
void decode_turbo(Type type, const std::byte* row, int64_t n, double* x);
void encode_turbo(Type type, std::byte* row, int64_t n, const double* x, Norm norm);

} // namespace winnow::reference
