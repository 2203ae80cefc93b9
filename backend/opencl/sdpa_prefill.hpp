// What dispatch needs of kernels/sdpa_prefill.cl: attention of any number of query tokens.
#pragma once

#include <cstdint>

#include "device/device.hpp"

namespace winnow::opencl {

// The rows that a work-group takes.
uint32_t sdpa_prefill_rows(const Sdpa& args);

} // namespace winnow::opencl
