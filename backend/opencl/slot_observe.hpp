// The operation on slots SlotObserve: the launcher of kernels/slot_observe.cl.
#pragma once

#include <array>

#include "device/slots.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

// I <- keep I + gain x, x the sum or the maximum over the query group.
struct Fold {
    float keep, gain;
};
Fold fold_of(const Importance& importance, int64_t group);

class SlotObserveLauncher {
public:
    explicit SlotObserveLauncher(Runtime& runtime) : runtime_(runtime) {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotObserve& args);

private:
    static constexpr int scratch_slot = 3; // with SlotFlush; nothing in it is to last beyond a launch
    Kernel& kernel_of(const Importance& importance);

    Runtime& runtime_;
    std::array<Kernel*, 10> kernels_{}; // by statistic and group, made at their first use
};

} // namespace winnow::opencl
