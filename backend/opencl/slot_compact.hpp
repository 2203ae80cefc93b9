// The operation on slots SlotCompact: the launcher of kernels/slot_compact.cl.
#pragma once

#include "device/slots.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

class SlotCompactLauncher {
public:
    explicit SlotCompactLauncher(Runtime& runtime) : runtime_(runtime) {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotCompact& args);

private:
    Runtime& runtime_;
};

} // namespace winnow::opencl
