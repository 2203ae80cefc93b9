// The operation on slots SlotEvict: the launcher of kernels/slot_evict.cl.
#pragma once

#include "device/slots.hpp"
#include "opencl/slot_segment.hpp"

namespace winnow::opencl {

class SlotEvictLauncher {
public:
    explicit SlotEvictLauncher(Runtime& runtime) : runtime_(runtime), kernel_(runtime, "slot_evict") {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotEvict& args);

private:
    Runtime& runtime_;
    SegmentKernel kernel_;
};

} // namespace winnow::opencl
