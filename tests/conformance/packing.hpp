// Packed rows as a test needs them: made by the reference's kv_append, read by its kv_dequantize.
#pragma once

#include "test_tensor.hpp"

namespace winnow::conformance {

// Stores the numbers' rows into the target's rows.
void pack(const TestTensor& numbers, TestTensor& target, uint32_t norm = WINNOW_NORM_DEFAULT);
// The numbers that a tensor's rows stand for, in F32 without gaps.
TestTensor unpack(const TestTensor& rows);
// R x, or with inverse R^-1 x, of each row in F32.
TestTensor rotate(const TestTensor& numbers, bool inverse);

// 0, 1, ... as row indices for every batch entry and head.
TestTensor all_rows(int64_t count);

} // namespace winnow::conformance
