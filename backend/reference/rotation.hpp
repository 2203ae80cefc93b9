// The rotation R of the turbo formats and of winnow_hadamard_desc: docs/formats.md has the definition and the figures.
#pragma once

#include <cstdint>

namespace winnow::reference {

// In place, over n elements; n is a multiple of 16.
void rotate(double* x, int64_t n);
void rotate_back(double* x, int64_t n);

} // namespace winnow::reference
