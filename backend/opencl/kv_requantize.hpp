// The operation kv_requantize: the launcher of kernels/kv_requantize.cl.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

class KvRequantizeLauncher {
public:
    explicit KvRequantizeLauncher(Runtime& runtime) : runtime_(runtime) {}

    // The name of the variant that would run; throws UNSUPPORTED with the reason. No side effect.
    std::string validate(const KvRequantize& args) const;
    std::unique_ptr<Event> launch(const KvRequantize& args, bool want_event);

private:
    Runtime& runtime_;
};

} // namespace winnow::opencl
