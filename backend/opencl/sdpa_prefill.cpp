// How many rows a work-group of sdpa_prefill takes, in either shape.
#include "opencl/variants.hpp"

#include <algorithm>

#include "opencl/runtime.hpp"

namespace winnow::opencl {

uint32_t sdpa_prefill_rows(const Sdpa& args, const Capabilities&) {
    // All that a group works on should stay in the second-level cache, and its private memory on a thread's stack.
    const int64_t largest = std::max(args.head_size(), args.v_head_size());
    uint32_t rows = largest <= 128 ? 64 : 32;
    while (rows > 16 && rows / 2 >= args.group() * args.q_len()) rows /= 2;
    return rows;
}

uint32_t sdpa_prefill_workgroup_rows(const Sdpa& args, const Capabilities& capabilities) {
    // The state of a group, in sdpa_prefill_group_state.h: what does not depend on rows, a stage among it, and of each
    // row Q or the sums, a tile, and numbers.
    constexpr int64_t fixed = 1200, tile = 68 * 4, numbers = 72;
    const int64_t stage = (args.v_head_size() + 63) / 64 % 2 != 0 ? 32 * 80 * 4 : 64 * 36 * 4;
    const auto padded = [](int64_t size, int64_t multiple) { return (size + multiple - 1) / multiple * multiple; };
    const int64_t row = std::max(padded(args.head_size(), 32) + 4, padded(args.v_head_size(), 16)) * 4 + tile + numbers;
    for (const uint32_t rows : {32u, 16u, 8u})
        if (static_cast<uint64_t>(fixed + stage + rows * row) <= capabilities.local_memory_size) return rows;
    return 0;
}

} // namespace winnow::opencl
