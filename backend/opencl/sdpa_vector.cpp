// How many rows a pass of sdpa_vector takes, and when it is worth it.
#include "opencl/sdpa_vector.hpp"

namespace winnow::opencl {
namespace {

constexpr int64_t most_tokens = 8;
constexpr int64_t rows_of_a_pass = 8; // their sums stay in registers
// From here on the transposition that sdpa_prefill makes first pays.
constexpr int64_t rows_better_in_blocks = 17;

} // namespace

SdpaKernel choose_sdpa_vector(const Sdpa& args, bool single_launch) {
    check_sdpa(args);
    if (args.q_len() > most_tokens) {
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "sdpa_vector takes up to 8 query tokens, given are " + std::to_string(args.q_len()));
    }
    SdpaKernel kernel;
    kernel.single_launch = single_launch;
    kernel.k = args.k.type;
    kernel.v = args.v.type;
    kernel.head_size = static_cast<uint32_t>(args.head_size());
    kernel.v_head_size = static_cast<uint32_t>(args.v_head_size());
    // Even blocks, so that the last one is not nearly empty.
    const int64_t rows = args.group() * args.q_len();
    const int64_t blocks = (rows + rows_of_a_pass - 1) / rows_of_a_pass;
    kernel.rows = static_cast<uint32_t>((rows + blocks - 1) / blocks);
    if (kernel.rows == 7) kernel.rows = 8;
    return kernel;
}

bool prefers_sdpa_vector(const Sdpa& args) {
    return args.q_len() <= most_tokens && args.group() * args.q_len() < rows_better_in_blocks;
}

} // namespace winnow::opencl
