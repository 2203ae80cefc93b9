// Judges a row of ggml's blocks or of affine groups that was made from numbers known to a rounding only: one that was
// turned back out of a rotated format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace winnow::conformance {

// "" where the row is what the format's quantizer makes of some numbers that are as near to x as they can be known,
// else what is wrong. x is finite.
std::string judge_quantized(uint32_t type, const std::byte* row, const std::vector<double>& x);

} // namespace winnow::conformance
