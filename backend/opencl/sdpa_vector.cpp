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
    // The state of a group, in sdpa_group_state.h: what does not depend on rows, and of each row the parts of inner
    // products of 128 work-items (for half of more than 4 rows), Q or the sums of a segment, the sums, and a tile.
    constexpr uint64_t fixed = 3 * 1024 + 512, parts = 2 * 128 * 5 * sizeof(float), tile = 136 * sizeof(float);
    const auto row_bytes = [](int64_t size) { return static_cast<uint64_t>(size + 15) / 16 * 16 * sizeof(float); };
    const uint64_t k = row_bytes(args.head_size()), v = row_bytes(args.v_head_size());
    const auto state_bytes = [&](uint64_t rows) {
        return fixed + (rows > 4 ? (rows + 1) / 2 : rows) * parts + rows * (std::max(k, v) + v + tile);
    };
    uint32_t rows = sdpa_vector_rows(args, capabilities);
    while (rows > 1 && state_bytes(rows) > capabilities.local_memory_size) rows = std::bit_floor(rows - 1);
    return rows;
}

} // namespace winnow::opencl
