// The launcher of kernels/sdpa_vector.cl: attention of 1 to 8 query tokens.
#pragma once

#include "opencl/sdpa_launch.hpp"

namespace winnow::opencl {

// The specialisation that would run; throws UNSUPPORTED with the reason.
SdpaKernel choose_sdpa_vector(const Sdpa& args, bool single_launch);

// Whether it is the better of the two kernels for these sizes.
bool prefers_sdpa_vector(const Sdpa& args);

} // namespace winnow::opencl
