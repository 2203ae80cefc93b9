// From winnow::Sdpa, or a winnow::SlotAttention, to a launch, whichever kernel it is: the parameter struct, the memory
// and the launch.
#pragma once

#include <memory>

#include "opencl/sdpa_kernel.hpp"
#include "opencl/sdpa_step.hpp"

namespace winnow::opencl {

// Throws UNSUPPORTED with the reason where no attention kernel can do it. `args` has the k and v of the first segment.
void check_sdpa(const Sdpa& args, SdpaSegments segments);

std::unique_ptr<Event> launch_sdpa(Runtime& runtime, SdpaPrograms& programs, const SdpaKernel& kernel, const Sdpa& args,
                                   SdpaSegments segments, const VariantOptions& options, bool want_event,
                                   const SdpaStep& step = {});

} // namespace winnow::opencl
