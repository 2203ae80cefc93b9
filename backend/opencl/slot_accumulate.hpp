// The operation on slots SlotAccumulate: the launcher of kernels/slot_accumulate.cl.
#pragma once

#include <array>
#include <string>

#include "device/slots.hpp"
#include "opencl/runtime.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {

// I <- keep I + gain x, x the sum over the query group.
struct Accumulate {
    float keep, gain;
};
Accumulate accumulate_of(const Importance& importance, int64_t group);

// The compiler's option for a kernel that keeps the statistic, or none.
std::string statistic_option(Statistic statistic);

class SlotAccumulateLauncher {
public:
    explicit SlotAccumulateLauncher(Runtime& runtime) : runtime_(runtime) {}

    // Throws UNSUPPORTED with the reason.
    void launch(const SlotAccumulate& args);

private:
    Kernel& kernel_of(const Importance& importance);

    Runtime& runtime_;
    const Variant* variant_ = nullptr; // of the kernels
    std::array<Kernel*, 5> kernels_{}; // by statistic, made at their first use
};

} // namespace winnow::opencl
