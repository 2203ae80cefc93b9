// A barrier, on the event itself or on a gate.
#include "opencl/awaited.hpp"

#include <chrono>
#include <string>
#include <system_error>

#include "device/device.hpp"

namespace winnow::opencl {
namespace {

cl::Event retained(cl_event event) {
    check(clRetainEvent(event), "clRetainEvent");
    return cl::Event(event, false);
}

void enqueue_barrier(const WorkerQueue& worker, cl_event event) {
    check(clEnqueueBarrierWithWaitList(worker.queue(), 1, &event, nullptr), "clEnqueueBarrierWithWaitList");
}

// Returns once the event is over, or nothing can be found out about it any more.
void wait_until_over(cl_event event) {
    for (;;) {
        const cl_int code = clWaitForEvents(1, &event);
        if (code == CL_SUCCESS || code == CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST) return;
        cl_int status = CL_QUEUED;
        if (clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr) != CL_SUCCESS ||
            status <= CL_COMPLETE)
            return;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
}

} // namespace

Awaited::Awaited(const WorkerQueues& workers, cl_event event) : event_(retained(event)) {
    const WorkerQueue& worker = workers.front();
    if (!workers.quirks.has(Quirk::failed_events)) {
        enqueue_barrier(worker, event);
        return;
    }
    cl_int code = CL_SUCCESS;
    gate_ = cl::Event(clCreateUserEvent(worker.context(), &code));
    check(code, "clCreateUserEvent");
    enqueue_barrier(worker, gate_());
    try {
        gatekeeper_ = std::jthread([event, gate = gate_()] {
            wait_until_over(event);
            clSetUserEventStatus(gate, CL_COMPLETE);
        });
    } catch (const std::system_error& error) {
        clSetUserEventStatus(gate_(), CL_COMPLETE);
        throw Error(WINNOW_ERROR_OUT_OF_MEMORY, std::string("no thread for opencl_wait_event: ") + error.what());
    }
}

std::string failed_event_text(cl_int status) {
    return std::string("the cl_event given to opencl_wait_event failed with ") + cl_error_name(status) + " (" +
           std::to_string(status) + "): what was called after opencl_wait_event has no defined results; call it again";
}

} // namespace winnow::opencl
