// The operation hadamard: the launcher of kernels/hadamard.cl.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

class HadamardLauncher {
public:
    explicit HadamardLauncher(Runtime& runtime) : runtime_(runtime) {}

    // The name of the variant that would run; throws UNSUPPORTED with the reason. No side effect.
    std::string validate(const Hadamard& args) const;
    std::unique_ptr<Event> launch(const Hadamard& args, bool want_event);

private:
    Runtime& runtime_;
};

} // namespace winnow::opencl
