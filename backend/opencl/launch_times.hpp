// When launches began and ended, for a host that asked to be told (winnow_context_desc.launched).
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

#include "device/device.hpp"
#include "opencl/cl.hpp"

namespace winnow::opencl {

class LaunchTimes {
public:
    explicit LaunchTimes(const DeviceRequest& request)
        : told_(request.launched), user_data_(request.launched_user_data), log_(request.log) {}

    bool are_wanted() const { return told_ != nullptr; }

    // A launch in one command of the first worker queue, or several. `kernel` has to live as long as this.
    class Launch {
    public:
        Launch(const char* kernel, uint64_t bytes, uint64_t enqueued_ns)
            : kernel_(kernel), bytes_(bytes), enqueued_ns_(enqueued_ns) {}
        void add(cl_event event); // of the next command; it is taken over

    private:
        friend LaunchTimes;
        const char* kernel_;
        uint64_t bytes_;
        uint64_t enqueued_ns_;
        cl::Event first_, last_; // none is retained twice, which may fail; last_: of several commands
        const cl::Event& last() const { return last_() != nullptr ? last_ : first_; }
    };
    // A launch whose commands are enqueued next; null where nobody wants to know. Valid until the next call.
    Launch* begin(const char* kernel, uint64_t bytes);

    // Of a launch that ran within this call.
    void tell(const char* kernel, uint64_t bytes, uint64_t begin_ns, uint64_t end_ns) const;
    // Of those that are over, in their order.
    void deliver();

private:
    void tell(const Launch& launch); // throws where the driver has not measured it

    winnow_launch_callback told_;
    void* user_data_;
    Log log_;
    // By how much the host's clock is ahead of the device's, as a wrapped difference: the most that is certain, as a
    // command cannot have been queued before its call. So times are never later than they were, and stay in order.
    std::optional<int64_t> ahead_;
    std::deque<Launch> coming_;
};

} // namespace winnow::opencl
