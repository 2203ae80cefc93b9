// The operation kv_dequantize: the launcher of kernels/kv_dequantize.cl.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "opencl/runtime.hpp"

namespace winnow::opencl {

class KvDequantizeLauncher {
public:
    explicit KvDequantizeLauncher(Runtime& runtime) : runtime_(runtime) {}

    // The name of the variant that would run; throws UNSUPPORTED with the reason. No side effect.
    std::string validate(const KvDequantize& args) const;
    std::unique_ptr<Event> launch(const KvDequantize& args, bool want_event);

private:
    Runtime& runtime_;
};

} // namespace winnow::opencl
