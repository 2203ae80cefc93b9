// The launcher of kernels/sdpa_prefill.cl: attention of any number of query tokens.
#pragma once

#include "opencl/sdpa_launch.hpp"

namespace winnow::opencl {

// The specialisation that would run; throws UNSUPPORTED with the reason.
SdpaKernel choose_sdpa_prefill(const Sdpa& args, bool single_launch);

} // namespace winnow::opencl
