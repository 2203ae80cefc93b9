// What kernels have instead of built-in functions that came after OpenCL C 1.2, against the host's. The language is
// said to be 1.2 here, so that any driver compiles what a device of 1.2 gets.
#include <gtest/gtest.h>

#include <bit>
#include <fstream>
#include <random>
#include <sstream>
#include <vector>

#include "opencl/runtime_state.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl {
namespace {

constexpr std::string_view kernel_text = R"(
kernel void count(ulong offset_in, global const uchar* input, global uchar* output, uint group_base) {
    if (group_base == 0xffffffffu) return;
    const uint i = get_group_id(0) + group_base;
    ((global uint*)output)[i] = trailing_zeros(((global const uint*)(input + offset_in))[i]);
}
)";

std::string source_of(const char* language) {
    std::ifstream header(std::string(WINNOW_KERNELS) + "/opencl_1_2.h");
    std::ostringstream text;
    text << "#undef __OPENCL_C_VERSION__\n#define __OPENCL_C_VERSION__ " << language << "\n" << header.rdbuf();
    EXPECT_TRUE(header) << "kernels/opencl_1_2.h cannot be read";
    return text.str().append(kernel_text);
}

class opencl_1_2 : public opencl_test, public testing::WithParamInterface<const char*> {};

TEST_P(opencl_1_2, trailing_zeros_are_counted) {
    Runtime runtime(cpu_request());

    std::vector<uint32_t> numbers{0, 1, 0xffffffffu, 0x80000000u, 0xfffffffeu};
    for (uint32_t bit = 0; bit < 32; ++bit) numbers.insert(numbers.end(), {1u << bit, ~0u << bit, ~(1u << bit)});
    std::mt19937 engine(1);
    for (uint32_t at = 0; at < 300; ++at) numbers.push_back(static_cast<uint32_t>(engine()) << at % 32);
    const size_t bytes = numbers.size() * sizeof numbers[0];
    const auto input = runtime.allocate(bytes), output = runtime.allocate(bytes);
    input->write(0, numbers.data(), bytes);

    const std::string source = source_of(GetParam());
    Kernel& kernel = runtime.state().programs.kernel_of_source("count", source, "count", {});
    const auto memory = [](const Buffer& buffer) { return static_cast<const ClBuffer&>(buffer).memory(); };
    Operation operation(runtime);
    operation.launch(kernel, uint64_t{0}, {memory(*input), memory(*output)}, Grid{.groups = {numbers.size(), 1, 1}});
    operation.complete(false);

    std::vector<uint32_t> counts(numbers.size());
    output->read(0, counts.data(), bytes);
    for (size_t at = 0; at < numbers.size(); ++at)
        EXPECT_EQ(counts[at], static_cast<uint32_t>(std::countr_zero(numbers[at]))) << std::hex << numbers[at];
}

INSTANTIATE_TEST_SUITE_P(languages, opencl_1_2, testing::Values("120", "200"),
                         [](const auto& each) { return std::string("version_") + each.param; });

} // namespace
} // namespace winnow::opencl
