// How a kernel with its arguments comes to run: on one worker queue, or divided among all.
#pragma once

#include <span>

#include "opencl/runtime_state.hpp"

namespace winnow::opencl {

struct Arguments {
    Kernel& kernel;
    const void* params;
    size_t params_size;
    std::span<const Memory* const> memory;
};

// Enqueues, in order after all that was enqueued before. Divided among the worker queues it is complete on return.
// has_begun becomes true once something of it was enqueued, also where the rest fails.
void run(RuntimeState& state, const Arguments& arguments, const Grid& grid, bool& has_begun);

} // namespace winnow::opencl
