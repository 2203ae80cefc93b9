// The operation on slots SlotCopy: the launcher of kernels/slot_copy.cl.
#pragma once

#include "device/slots.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

class SlotCopyLauncher {
public:
    explicit SlotCopyLauncher(Runtime& runtime) : runtime_(runtime) {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotCopy& args);

private:
    Runtime& runtime_;
};

} // namespace winnow::opencl
