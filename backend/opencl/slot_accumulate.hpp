// The operation on slots SlotAccumulate: the launcher of kernels/slot_accumulate.cl.
#pragma once

#include <array>
#include <string>

#include "device/slots.hpp"
#include "opencl/runtime.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {

// I <- keep I + gain x, x the sum or the maximum over the query group.
struct Accumulate {
    float keep, gain;
};
Accumulate accumulate_of(const Importance& importance, int64_t group);

// The compiler's options for a kernel that keeps the statistic, or none; over the query group it is the maximum or the
// mean.
std::string statistic_options(Statistic statistic, bool is_maximum);

class SlotAccumulateLauncher {
public:
    explicit SlotAccumulateLauncher(Runtime& runtime) : runtime_(runtime) {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotAccumulate& args);

private:
    Kernel& kernel_of(const Importance& importance);

    Runtime& runtime_;
    const Variant* variant_ = nullptr;  // of the kernels
    std::array<Kernel*, 10> kernels_{}; // by statistic and group, made at their first use
};

} // namespace winnow::opencl
