// An append of one token that waits for the attention over its rows: both are one launch then, as fused attention is.
// Where the context divides launches among the host's threads, a launch costs as much as some hundred keys, and a
// host that keeps its own rows has two for each layer.
//
// What is deferred has been checked, and its rows are copied, so that their memory may be used for anything afterwards.
// Whatever else is asked of the device comes after it: Operation and RuntimeState::finish() launch it first.
#pragma once

#include <memory>

#include "device/device.hpp"
#include "opencl/memory.hpp"
#include "opencl/sdpa_kernel.hpp"

namespace winnow::opencl {

struct RuntimeState;

class DeferredAppend {
public:
    // Defers a checked append; false where it has to be launched at once.
    bool defer(RuntimeState& state, const KvAppend& args);
    bool is_deferred() const { return is_deferred_; }

    // Whether the attention can store the rows: they are of the one token that it has, dense, and in its keys and
    // values.
    bool can_ride(const Sdpa& args, const SdpaKernel& kernel) const;

    const KvAppend& args() const { return args_; } // over copies of the rows
    uint32_t slot() const { return static_cast<uint32_t>(slot_); }

    // Runs what launches it; where that throws, it stays deferred.
    template <class Launch>
    auto launched(RuntimeState& state, Launch&& launch) {
        take(state);
        try {
            return launch();
        } catch (...) {
            give_back(state);
            throw;
        }
    }

private:
    void take(RuntimeState& state);
    void give_back(RuntimeState& state);

    std::unique_ptr<HostPages> copies_;
    KvAppend args_;
    int64_t slot_ = 0;
    bool is_deferred_ = false;
};

} // namespace winnow::opencl
