// What dispatch needs of kernels/sdpa_vector.cl: attention of few query tokens.
#pragma once

#include <cstdint>

#include "device/device.hpp"

namespace winnow::opencl {

// The rows that a pass takes.
uint32_t sdpa_vector_rows(const Sdpa& args);

} // namespace winnow::opencl
