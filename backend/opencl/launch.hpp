// How a kernel with its arguments comes to run: on one worker queue, or divided among all.
#pragma once

#include <functional>
#include <span>

#include "opencl/runtime_state.hpp"

namespace winnow::opencl {

struct Arguments {
    Kernel& kernel;
    const void* params;
    size_t params_size;
    std::span<const Memory* const> memory;
    bool are_params_in_memory = false; // also where the device takes as many bytes by value
};

// Enqueues, in order after all that was enqueued before. Divided among the worker queues it is complete on return.
// has_begun becomes true once something of it was enqueued, also where the rest fails.
void run(RuntimeState& state, const Arguments& arguments, const Grid& grid, bool& has_begun);

// Device::host_threads and run_on_host: the threads that compute for the worker queues.
uint32_t host_threads(const RuntimeState& state);
void run_on_host(const RuntimeState& state, uint32_t count, const std::function<void(uint32_t)>& task);

} // namespace winnow::opencl
