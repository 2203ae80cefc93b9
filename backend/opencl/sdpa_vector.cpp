// How many rows a pass of sdpa_vector takes.
#include "opencl/variants.hpp"

namespace winnow::opencl {

uint32_t sdpa_vector_rows(const Sdpa& args) {
    constexpr int64_t rows_of_a_pass = 8; // their sums stay in registers
    // Even blocks, so that the last one is not nearly empty.
    const int64_t rows = args.group() * args.q_len();
    const int64_t blocks = (rows + rows_of_a_pass - 1) / rows_of_a_pass;
    const int64_t even = (rows + blocks - 1) / blocks;
    return even == 7 ? 8 : static_cast<uint32_t>(even);
}

} // namespace winnow::opencl
