// How many rows a pass of sdpa_vector takes.
#include "opencl/variants.hpp"

#include <algorithm>
#include <bit>

#include "opencl/runtime.hpp"

namespace winnow::opencl {

uint32_t sdpa_vector_rows(const Sdpa& args, const Capabilities&) {
    constexpr int64_t rows_of_a_pass = 8; // their sums stay in registers
    const int64_t rows = args.group() * args.q_len();
    const int64_t blocks = (rows + rows_of_a_pass - 1) / rows_of_a_pass;
    const auto even = static_cast<uint32_t>((rows + blocks - 1) / blocks);
    // Decoding repeats one size: even blocks, so that the last one is not nearly empty. Several tokens come in any
    // number, and each size is a program to be compiled: powers of two.
    return args.q_len() == 1 && even != 7 ? even : std::bit_ceil(even);
}

uint32_t sdpa_workgroup_rows(const Sdpa& args, const Capabilities& capabilities) {
    // The state of a group, without what does not depend on rows or head sizes: sdpa_group_state.h.
    constexpr uint64_t rest = 20 * 1024;
    const auto chunks = [](int64_t size) { return static_cast<uint64_t>(size + 15) / 16; };
    const uint64_t k_chunks = chunks(args.head_size()), v_chunks = chunks(args.v_head_size());
    const uint64_t floats = 16 * (std::max(k_chunks, v_chunks) + v_chunks) + 256;
    uint32_t rows = sdpa_vector_rows(args, capabilities);
    while (rows > 1 && rest + rows * floats * sizeof(float) > capabilities.local_memory_size)
        rows = std::bit_floor(rows - 1);
    return rows;
}

} // namespace winnow::opencl
