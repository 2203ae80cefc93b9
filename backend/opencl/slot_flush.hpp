// The operation on slots SlotFlush: the launcher of kernels/slot_flush.cl.
#pragma once

#include "device/slots.hpp"
#include "opencl/slot_store.hpp"

namespace winnow::opencl {

class SlotFlushLauncher {
public:
    explicit SlotFlushLauncher(Runtime& runtime) : runtime_(runtime), kernel_(runtime, "slot_flush") {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotFlush& args);

private:
    Runtime& runtime_;
    StoreKernel kernel_;
};

} // namespace winnow::opencl
