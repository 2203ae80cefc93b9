// The operation kv_append: the launcher of kernels/kv_append.cl.
#pragma once

#include <memory>
#include <string>

#include "device/device.hpp"
#include "opencl/runtime.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {

class KvAppendLauncher {
public:
    explicit KvAppendLauncher(Runtime& runtime) : runtime_(runtime) {}

    // The name of the variant that would run; throws UNSUPPORTED with the reason. No side effect.
    std::string validate(const KvAppend& args) const;
    std::unique_ptr<Event> launch(const KvAppend& args, bool want_event);

private:
    const Variant& check(const KvAppend& args) const;

    Runtime& runtime_;
};

} // namespace winnow::opencl
