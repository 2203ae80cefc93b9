// How many rows a work-group of sdpa_prefill takes.
#include "opencl/variants.hpp"

#include <algorithm>

namespace winnow::opencl {

uint32_t sdpa_prefill_rows(const Sdpa& args, const Capabilities&) {
    // All that a group works on should stay in the second-level cache, and its private memory on a thread's stack.
    const int64_t largest = std::max(args.head_size(), args.v_head_size());
    uint32_t rows = largest <= 128 ? 64 : 32;
    while (rows > 16 && rows / 2 >= args.group() * args.q_len()) rows /= 2;
    return rows;
}

} // namespace winnow::opencl
