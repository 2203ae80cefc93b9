// Rows of turbo4 and turbo3 as docs/formats.md has them, by arithmetic of the host in double precision.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "device/format.hpp"

namespace winnow::opencl {

// y = R x as it is stored: of each element a code of so many bits, 4 or 3, and one factor.
struct TurboRow {
    int bits;
    std::vector<uint32_t> codes;
    float factor; // that a half has whole

    void store(uint8_t* at) const;
    std::vector<double> numbers() const; // x as it reads
};

// x as it is quantized, with the norm "corrected" or "unit slope". is_clear: no code and no factor is so near to
// another one that the float arithmetic of a kernel might take that.
TurboRow quantized(int bits, Norm norm, const std::vector<double>& x, bool& is_clear);

} // namespace winnow::opencl
