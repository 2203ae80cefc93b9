// A launch before a kernel's first launch, for drivers with the quirk warm_up, which is PoCL. There a kernel is
// finished (loaded and, where its program has intermediate code, compiled for its group size) at its first launch, and
// what was loaded is kept by kernel and widest grid so far. When a wider grid comes along while another thread is
// running the same kernel, the two entries are mixed up: an assertion in Debian's PoCL 3.1 aborts the process. So the
// first launch of each kernel is made wide, alone in the process, and with a group_base that makes every group return
// at once; no later launch is wider.
#pragma once

#include <mutex>
#include <string_view>

#include "opencl/cl.hpp"

namespace winnow::opencl {

// Every kernel returns at once where its argument group_base is this.
constexpr cl_uint warm_up_base = 0xffffffffu;

// Work-items along the first axis. From 65535 on PoCL takes a grid for a large one, and where the program has
// intermediate code compiles the kernel once more.
constexpr size_t warm_up_width = 65534;

// Exists while a kernel is warmed up; at most one at a time does in this process.
class WarmUp {
public:
    explicit WarmUp(std::string_view kernel);

    // PoCL forgets kernels beyond 128, and their warm-up launches with them. Near that nothing may run in two threads
    // any more.
    static bool is_crowded();

private:
    std::lock_guard<std::mutex> guard_;
};

} // namespace winnow::opencl
