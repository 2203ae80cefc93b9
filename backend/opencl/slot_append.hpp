// The operation on slots SlotAppend: the launcher of kernels/slot_append.cl.
#pragma once

#include "device/slots.hpp"
#include "opencl/slot_segment.hpp"

namespace winnow::opencl {

class SlotAppendLauncher {
public:
    explicit SlotAppendLauncher(Runtime& runtime) : runtime_(runtime), kernel_(runtime, "slot_append") {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotAppend& args);

private:
    Runtime& runtime_;
    SegmentKernel kernel_;
};

} // namespace winnow::opencl
