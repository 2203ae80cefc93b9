// Reads the events of OpenCL's profiling.
#include "opencl/launch_times.hpp"

#include <algorithm>
#include <string>

#include "device/clock.hpp"

namespace winnow::opencl {
namespace {

constexpr size_t most_coming = 1024; // launches; from then on those that are over are told of without a wait

// False while the command runs; throws where it failed, or nothing can be found out.
bool is_over(const cl::Event& event) {
    const cl_int status = status_of(event());
    if (status < 0) throw_cl_error(status, "clEnqueueNDRangeKernel");
    return status == CL_COMPLETE;
}

cl_ulong measured(const cl::Event& event, cl_profiling_info what) {
    cl_ulong time = 0;
    opencl::check(clGetEventProfilingInfo(event(), what, sizeof time, &time, nullptr), "clGetEventProfilingInfo");
    return time;
}

} // namespace

void LaunchTimes::Launch::add(cl_event event) { (first_() == nullptr ? first_ : last_) = cl::Event(event); }

LaunchTimes::Launch* LaunchTimes::begin(const char* kernel, uint64_t bytes) {
    if (!are_wanted()) return nullptr;
    if (coming_.size() >= most_coming) deliver();
    return &coming_.emplace_back(kernel, bytes, monotonic_ns());
}

void LaunchTimes::tell(const char* kernel, uint64_t bytes, uint64_t begin_ns, uint64_t end_ns) const {
    const winnow_launch launch{sizeof launch, 0, kernel, begin_ns, end_ns, bytes};
    told_(user_data_, &launch);
}

void LaunchTimes::tell(const Launch& launch) {
    const cl_ulong queued = measured(launch.first_, CL_PROFILING_COMMAND_QUEUED),
                   begin = measured(launch.first_, CL_PROFILING_COMMAND_START),
                   end = measured(launch.last(), CL_PROFILING_COMMAND_END);
    const auto ahead = static_cast<int64_t>(launch.enqueued_ns_ - queued);
    ahead_ = std::max(ahead_.value_or(ahead), ahead);
    const auto on_host = [&](cl_ulong time) { return time + static_cast<uint64_t>(*ahead_); };
    tell(launch.kernel_, launch.bytes_, on_host(begin), on_host(std::max(begin, end)));
}

void LaunchTimes::deliver() {
    for (; !coming_.empty(); coming_.pop_front()) {
        const Launch& launch = coming_.front();
        if (launch.first_() == nullptr) continue; // nothing was enqueued
        try {
            if (!is_over(launch.last())) return;
            tell(launch);
        } catch (const Error& error) {
            log_(WINNOW_LOG_WARNING,
                 std::string(error.what()) + "; nothing is told of this launch of " + launch.kernel_);
        }
    }
}

} // namespace winnow::opencl
