// The operation sdpa: chooses between its kernels and launches.
#pragma once

#include <memory>
#include <string>

#include "opencl/sdpa_launch.hpp"

namespace winnow::opencl {

class SdpaLauncher {
public:
    // Both outlive the launcher.
    SdpaLauncher(Runtime& runtime, const VariantOptions& options) : runtime_(runtime), options_(options) {}

    // The name of the variant that would run; throws UNSUPPORTED with the reason. No side effect.
    std::string validate(const Sdpa& args) const;
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event);

private:
    SdpaKernel choose(const Sdpa& args) const;

    Runtime& runtime_;
    const VariantOptions& options_;
    SdpaPrograms programs_;
};

} // namespace winnow::opencl
