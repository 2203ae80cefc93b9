// Events of the host's that a worker queue waits for (wait_cl_event).
#pragma once

#include <string>
#include <thread>

#include "opencl/cl.hpp"
#include "opencl/worker_queues.hpp"

namespace winnow::opencl {

class Awaited {
public:
    // Enqueues the wait. Throws where nothing was enqueued, or where what was waits for nothing.
    Awaited(const WorkerQueues& workers, cl_event event);

    // CL_COMPLETE or above, or below 0 where it failed.
    cl_int status() const { return status_of(event_()); }

private:
    cl::Event event_;
    // With the quirk failed_events: what the queue waits for, and who opens it once the event is over, failed or not.
    cl::Event gate_;
    std::jthread gatekeeper_; // ends before the events go
};

// For an event that failed.
std::string failed_event_text(cl_int status);

} // namespace winnow::opencl
