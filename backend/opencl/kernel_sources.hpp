// The kernels carried by this shared object; cmake/embed_kernels.cmake generates the table from kernels/.
#pragma once

#include <span>
#include <string_view>

namespace winnow::opencl {

struct KernelSource {
    std::string_view name;   // file name: "sdpa_vector.cl"
    std::string_view source; // with every #include resolved
    std::string_view hash;   // of source, hexadecimal
};

std::span<const KernelSource> kernel_sources();

} // namespace winnow::opencl
