// Where work runs: one worker queue, or several for a device that stands for several cores which compute in the calling
// thread. A worker queue is a context, a device and an in-order queue. Each worker queue has a context of its own:
// queues of one context that share a buffer wait for each other's events in PoCL, and what the worker queues share is
// host memory anyway.
#pragma once

#include <vector>

#include "device/device.hpp"
#include "opencl/cl.hpp"
#include "opencl/platform.hpp"
#include "opencl/variants.hpp"

namespace winnow::opencl {

struct WorkerQueue {
    cl::Context context;
    cl_device_id device = nullptr; // the context keeps it
    cl::CommandQueue queue;
};

constexpr size_t most_argument_bytes = 2048; // of a kernel of ours; OpenCL promises that a device takes 1024

struct WorkerQueues {
    std::vector<WorkerQueue> all; // at least one; more than one only with a parallel_for
    DeviceEntry entry;            // what they stand for
    // Rises whenever a cl_mem is released: a kernel that remembers its arguments must not trust an address that may
    // have been given to another object.
    uint64_t memory_epoch = 1;
    Quirks quirks;         // the driver's
    bool is_hosts = false; // the queue is the host's, which may have put work of its own into it
    // Kernels get their parameter struct in memory, because the device takes less than their arguments by value.
    bool has_params_in_memory = false;

    const WorkerQueue& front() const { return all.front(); }
    bool is_divided() const { return all.size() > 1; }
};

// A context of its own, with a queue. Throws DEVICE.
WorkerQueue make_worker_queue(cl_device_id device, bool is_timed = false);

// An in-order queue beside the worker queue's own; properties: CL_QUEUE_PROFILING_ENABLE, or 0.
cl::CommandQueue make_queue(const WorkerQueue& worker, cl_command_queue_properties properties = 0);

// The work of a queue that is to be over when this goes, whatever fails meanwhile: what it uses may go after it.
class Work {
public:
    explicit Work(cl_command_queue queue) : queue_(queue) {}
    ~Work() {
        if (!is_over_) clFinish(queue_);
    }
    Work(const Work&) = delete;
    Work& operator=(const Work&) = delete;
    void finish() { // as often as there is more
        is_over_ = false;
        check(clFinish(queue_), "clFinish");
        is_over_ = true;
    }

private:
    cl_command_queue queue_;
    bool is_over_ = false;
};

// Chooses the device by the request, or takes the host's own objects. Throws NOT_FOUND, INVALID_ARGUMENT, DEVICE.
WorkerQueues open_worker_queues(const DeviceRequest& request, const VariantOptions& forced);

} // namespace winnow::opencl
