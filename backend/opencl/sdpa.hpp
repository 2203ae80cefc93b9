// Attention, and fused attention over slots: chooses between their kernels and launches.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "opencl/sdpa_launch.hpp"
#include "opencl/slot_segment.hpp"

namespace winnow::opencl {

class SdpaLauncher {
public:
    // Runtime and options outlive the launcher.
    SdpaLauncher(Runtime& runtime, const VariantOptions& options) : runtime_(runtime), options_(options) {}

    // The name of the variant that would run; throws UNSUPPORTED with the reason. No side effect.
    std::string validate(const Sdpa& args) const;
    void check(const Sdpa& args) const { choose(args); } // the same without the name
    std::unique_ptr<Event> launch(const Sdpa& args, bool want_event);

    // All in one launch, or in two where the token comes into packed rows. Does nothing and returns false where the
    // attention is not that of one query token in one block of rows.
    bool attend(const SlotAttend& args, SegmentKernel& slot_append);
    // Several of them: in one launch of attention for each program that they need, where the device can; `alone` is for
    // the others.
    void attend(std::span<const SlotAttend> all, SegmentKernel& slot_append,
                const std::function<void(const SlotAttend&)>& alone);

private:
    SdpaKernel choose(const Sdpa& args) const;
    std::optional<SdpaKernel> fused_kernel(const SlotAttend& args) const; // none: it cannot be

    Runtime& runtime_;
    const VariantOptions& options_;
    SdpaPrograms programs_;
};

} // namespace winnow::opencl
