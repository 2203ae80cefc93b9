// From winnow::Sdpa to a launch, whichever kernel it is: the parameter struct, the memory and the launch.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "opencl/sdpa_fused.hpp"
#include "opencl/sdpa_kernel.hpp"

namespace winnow::opencl {

// Throws UNSUPPORTED with the reason where no attention kernel can do it.
void check_sdpa(const Sdpa& args);

// Of a row of Carry: sdpa_carried.h.
constexpr int64_t carried_floats_of(int64_t v_head_size) { return (v_head_size + 15) / 16 * 16 + 2; }

std::unique_ptr<Event> launch_sdpa(Runtime& runtime, SdpaPrograms& programs, SdpaKernel kernel, const Sdpa& args,
                                   const VariantOptions& options, bool want_event, const SdpaFused& fused = {});

// Fused attentions that are one launch, each cut into work-groups as alone. Whether kernels may be told addresses of
// the host's memory, and all of theirs has one:
bool can_launch_together(const Runtime& runtime, const SdpaKernel& kernel, std::span<const SdpaFused> all);
// begin: appends tokens that the launch cannot; it is called once there are a program and memory for the launch.
void launch_together(Runtime& runtime, SdpaPrograms& programs, SdpaKernel kernel, std::span<SdpaFused> all,
                     const VariantOptions& options, const std::function<void(SdpaFused&)>& begin);

} // namespace winnow::opencl
