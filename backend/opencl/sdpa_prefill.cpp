// How many rows a work-group of sdpa_prefill takes.
#include "opencl/sdpa_prefill.hpp"

#include <algorithm>

namespace winnow::opencl {

SdpaKernel choose_sdpa_prefill(const Sdpa& args, bool single_launch) {
    check_sdpa(args);
    SdpaKernel kernel;
    kernel.is_prefill = true;
    kernel.single_launch = single_launch;
    kernel.k = args.k.type;
    kernel.v = args.v.type;
    kernel.head_size = static_cast<uint32_t>(args.head_size());
    kernel.v_head_size = static_cast<uint32_t>(args.v_head_size());
    // All that a group works on should stay in the second-level cache, and its private memory on a thread's stack.
    const int64_t largest = std::max(args.head_size(), args.v_head_size());
    uint32_t rows = largest <= 128 ? 64 : 32;
    while (rows > 16 && rows / 2 >= args.group() * args.q_len()) rows /= 2;
    kernel.rows = rows;
    return kernel;
}

} // namespace winnow::opencl
