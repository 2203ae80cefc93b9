// The operation on slots SlotEdit: the launcher of kernels/slot_edit.cl.
#pragma once

#include "device/slots.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

class SlotEditLauncher {
public:
    explicit SlotEditLauncher(Runtime& runtime) : runtime_(runtime) {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotEdit& args);

private:
    Runtime& runtime_;
};

} // namespace winnow::opencl
