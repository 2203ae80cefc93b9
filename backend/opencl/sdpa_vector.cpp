// How many rows a pass of sdpa_vector takes.
#include "opencl/variants.hpp"

#include <bit>

namespace winnow::opencl {

uint32_t sdpa_vector_rows(const Sdpa& args) {
    constexpr int64_t rows_of_a_pass = 8; // their sums stay in registers
    const int64_t rows = args.group() * args.q_len();
    const int64_t blocks = (rows + rows_of_a_pass - 1) / rows_of_a_pass;
    const auto even = static_cast<uint32_t>((rows + blocks - 1) / blocks);
    // Decoding repeats one size: even blocks, so that the last one is not nearly empty. Several tokens come in any
    // number, and each size is a program to be compiled: powers of two.
    return args.q_len() == 1 && even != 7 ? even : std::bit_ceil(even);
}

} // namespace winnow::opencl
