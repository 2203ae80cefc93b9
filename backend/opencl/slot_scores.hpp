// The operation on slots SlotScores: the launcher of kernels/slot_scores.cl.
#pragma once

#include "device/slots.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

class SlotScoresLauncher {
public:
    explicit SlotScoresLauncher(Runtime& runtime) : runtime_(runtime) {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotScores& args);

private:
    Runtime& runtime_;
};

} // namespace winnow::opencl
