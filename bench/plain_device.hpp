// The OpenCL device that a backend computes on, for plain kernels of the benchmarks' own. With lent threads it is
// several devices, each of which computes in one of them, as the backend has it.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "harness.hpp"

namespace winnow::bench {

// Throws std::runtime_error that names the call.
void check_cl(cl_int status, const char* call);

// Releases an object of OpenCL.
template <typename Handle, auto release>
class Owned {
public:
    Owned() = default;
    explicit Owned(Handle handle) : handle_(handle) {}
    Owned(Owned&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Owned& operator=(Owned&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Owned() {
        if (handle_ != nullptr) release(handle_);
    }
    Handle get() const { return handle_; }

private:
    Handle handle_ = nullptr;
};
using OwnedMemory = Owned<cl_mem, clReleaseMemObject>;
using OwnedKernel = Owned<cl_kernel, clReleaseKernel>;

// A queue of one device, and the program of all plain kernels.
class PlainQueue {
public:
    PlainQueue(cl_device_id device, bool is_cpu);

    OwnedMemory memory(cl_mem_flags flags, size_t size, void* host = nullptr) const;
    void read(const OwnedMemory& memory, std::vector<cl_uint>& words) const; // as many as there are
    // With its arguments.
    template <typename... Arguments>
    OwnedKernel kernel(const char* name, const Arguments&... arguments) const {
        cl_int status = CL_SUCCESS;
        OwnedKernel made(clCreateKernel(program_.get(), name, &status));
        check_cl(status, "clCreateKernel");
        cl_uint index = 0;
        (check_cl(clSetKernelArg(made.get(), index++, sizeof arguments, &arguments), "clSetKernelArg"), ...);
        return made;
    }
    // With another argument 0 than it had.
    void enqueue(const OwnedKernel& kernel, cl_uint argument, size_t groups, size_t items) const;
    void enqueue(const OwnedKernel& kernel, size_t groups, size_t items) const;
    void finish() const { check_cl(clFinish(queue_.get()), "clFinish"); }

private:
    Owned<cl_context, clReleaseContext> context_;
    Owned<cl_command_queue, clReleaseCommandQueue> queue_;
    Owned<cl_program, clReleaseProgram> program_;
};

// Of the device's platform, as OpenCL tells it; empty where the backend computes without it.
std::string platform_version(const Backend& backend);

class PlainDevice {
public:
    // Null where the backend computes without OpenCL.
    static std::unique_ptr<PlainDevice> of(const Options& options, const Backend& backend);

    // CPUs get one work-item to a group, and vectors of 16 floats; others many, side by side, and vectors of 4.
    bool is_cpu() const { return is_cpu_; }
    size_t items() const { return is_cpu_ ? 1 : 256; } // of a group
    size_t groups() const;                             // that fill a queue's device
    size_t compute_units() const { return compute_units_; }
    const std::vector<PlainQueue>& queues() const { return queues_; }
    // Has a thread for each queue enqueue what `task` does with it, and waits.
    void run(const std::function<void(size_t)>& task) const;

private:
    PlainDevice() = default;

    bool is_cpu_ = true;
    size_t compute_units_ = 1;
    std::vector<PlainQueue> queues_;
};

} // namespace winnow::bench
