// What fused attention has beside its attention, as sdpa_vector takes it (kernels/sdpa_append.h,
// kernels/sdpa_importance.h).
#pragma once

#include <vector>

#include "opencl/deferred_append.hpp"
#include "opencl/runtime.hpp"
#include "opencl/sdpa_kernel.hpp"

namespace winnow::opencl {

// What a launch has beside its attention; args and deferred are NULL where the attention is all.
struct SdpaFused {
    const SlotAttend* args = nullptr;
    const DeferredAppend* deferred = nullptr; // rows of a host that keeps its own
    bool appends_token = false;               // args->append or `deferred` is part of the launch
};

// Whether one launch of the kernel can be all of it: the query heads of a KV head are one block of rows.
bool can_be_fused(const SdpaKernel& kernel, const Sdpa& args);

// Whether the attention itself can store the token: its row is dense, and in the first of the segments attended over.
bool can_append_token(const SlotAppend& append, const Segment& first);

// The same for the token of a deferred append: fills params.step, and adds its memory to the launch's.
void bind_deferred(Operation& operation, const DeferredAppend& deferred, sdpa_params& params,
                   std::vector<const Memory*>& memory);

// Fills params.step and what the segments have of it, and adds the memory of it to the launch's. Returns the part of
// that memory which combining the splits needs.
std::vector<const Memory*> bind_fused(Operation& operation, const SdpaKernel& kernel, const SdpaFused& fused,
                                      const SdpaDivision& division, sdpa_params& params,
                                      std::vector<const Memory*>& memory);

} // namespace winnow::opencl
