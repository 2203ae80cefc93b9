// That a shape whose attention is wrong is found out, and left for the next.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "opencl/runtime_state.hpp"
#include "opencl/sdpa.hpp"
#include "opencl/self_test.hpp"
#include "opencl/variants.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl {
namespace {

float from_half(uint16_t bits) {
    const float size = std::ldexp(static_cast<float>(bits & 0x3ff) / 1024 + ((bits & 0x7c00) != 0 ? 1.0f : 0.0f),
                                  ((bits >> 10) & 31) - 15);
    return (bits & 0x8000) != 0 ? -size : size;
}

// Attention as it should be, one element after the other.
void attend_right(const Sdpa& args) {
    const auto number = [](const Tensor& rows, int64_t row, int64_t e) {
        uint16_t bits = 0;
        std::memcpy(&bits, rows.data + row * rows.stride[2] + e * 2, sizeof bits);
        return from_half(bits);
    };
    for (int64_t row = 0; row < args.q_heads() * args.q_len(); ++row) { // of a head and a token
        const auto* q = reinterpret_cast<const float*>(args.q.data + row * args.q.stride[2]);
        auto* out = reinterpret_cast<float*>(args.out.data + row * args.out.stride[2]);
        std::vector<double> weights;
        double sum = 0;
        for (int64_t key = 0; key < args.kv_len(); ++key) {
            double logit = 0;
            for (int64_t e = 0; e < args.head_size(); ++e) logit += static_cast<double>(q[e]) * number(args.k, key, e);
            weights.push_back(std::exp(logit * args.scale));
            sum += weights.back();
        }
        for (int64_t e = 0; e < args.v_head_size(); ++e) {
            double value = 0;
            for (int64_t key = 0; key < args.kv_len(); ++key)
                value += weights[static_cast<size_t>(key)] * number(args.v, key, e);
            out[e] = static_cast<float>(value / sum);
        }
    }
}

// The last element of the last row, as a driver would get it wrong.
float& last_element(const Sdpa& args) {
    return reinterpret_cast<float*>(args.out.data)[args.q_heads() * args.q_len() * args.v_head_size() - 1];
}

Capabilities nvidia() {
    Capabilities device;
    device.type = WINNOW_DEVICE_GPU;
    device.local_memory_size = 48 * 1024;
    device.max_group_size = 1024;
    device.subgroup_sizes = 32;
    device.takes_ptx = device.has_tensor_cores = true;
    return device;
}

struct Left {
    Capabilities capabilities = nvidia();
    std::vector<std::string> warnings;

    // is_wrong: of the capabilities as they are at that time.
    template <class IsWrong>
    explicit Left(const IsWrong& is_wrong, const char* forced = "") {
        const auto log = [&](int32_t level, const std::string& text) {
            EXPECT_EQ(level, WINNOW_LOG_WARNING);
            warnings.push_back(text);
        };
        leave_out_wrong_shapes(capabilities, parse_variants(forced), log, [&](const Sdpa& args) {
            attend_right(args);
            if (is_wrong(capabilities)) last_element(args) += 0.001f;
        });
    }
    std::string shape() const { return std::string(kernel_shape(capabilities)); }
};

TEST(opencl_self_test, what_is_right_passes) { EXPECT_EQ(test_attention(attend_right), ""); }

TEST(opencl_self_test, one_element_that_is_wrong_is_found) {
    const float wrong[] = {0.001f, 100.0f, std::numeric_limits<float>::infinity(),
                           std::numeric_limits<float>::quiet_NaN()};
    for (const float more : wrong) {
        const std::string said = test_attention([&](const Sdpa& args) {
            attend_right(args);
            last_element(args) += more;
        });
        EXPECT_EQ(said.rfind("element 63 of head 3 is ", 0), 0u) << said;
    }
}

TEST(opencl_self_test, what_is_not_written_is_found) {
    const std::string said = test_attention([](const Sdpa&) {});
    EXPECT_EQ(said.rfind("element 0 of head 0 is nan", 0), 0u) << said;
}

TEST(opencl_self_test, the_way_without_matrices_is_tested_too) {
    EXPECT_NE(test_attention([](const Sdpa& args) {
                  attend_right(args);
                  if (args.v_threshold != 0) last_element(args) = 3;
              }),
              "");
}

TEST(opencl_self_test, a_kernel_that_does_not_compile_is_found) {
    EXPECT_EQ(test_attention([](const Sdpa&) { throw Error(WINNOW_ERROR_DEVICE, "no such instruction"); }),
              "no such instruction");
}

TEST(opencl_self_test, a_device_keeps_the_shape_that_is_right) {
    const Left right([](const Capabilities&) { return false; });
    EXPECT_EQ(right.shape(), "subgroup");
    EXPECT_TRUE(right.capabilities.has_tensor_cores);
    EXPECT_TRUE(right.warnings.empty());
}

TEST(opencl_self_test, a_shape_that_is_wrong_is_left_for_the_next) {
    const Left tensor([](const Capabilities& now) { return now.has_tensor_cores; });
    EXPECT_EQ(tensor.shape(), "subgroup");
    EXPECT_FALSE(tensor.capabilities.has_tensor_cores);
    ASSERT_EQ(tensor.warnings.size(), 1u);
    EXPECT_NE(tensor.warnings[0].find("wrong with tensor cores"), std::string::npos) << tensor.warnings[0];

    const Left subgroup([](const Capabilities& now) { return now.subgroup_sizes != 0; });
    EXPECT_EQ(subgroup.shape(), "workgroup");
    EXPECT_EQ(subgroup.warnings.size(), 2u);

    const Left all([](const Capabilities&) { return true; });
    EXPECT_EQ(all.shape(), "cpu");
    EXPECT_EQ(all.warnings.size(), 3u);
}

TEST(opencl_self_test, prompts_that_are_wrong_are_left_to_the_kernel_of_few_tokens) {
    uint32_t tested = 0;
    const Left right([&](const Capabilities&) { return ++tested, false; });
    EXPECT_EQ(tested, 3u); // a token without a threshold and with one, and a prompt
    EXPECT_TRUE(right.capabilities.prompts_in_groups);
    uint32_t attentions = 0;
    const Left wrong([&](const Capabilities&) { return ++attentions == 3; });
    EXPECT_FALSE(wrong.capabilities.prompts_in_groups);
    EXPECT_EQ(wrong.shape(), "subgroup");
    EXPECT_TRUE(wrong.capabilities.has_tensor_cores);
    ASSERT_EQ(wrong.warnings.size(), 1u);
    EXPECT_NE(wrong.warnings[0].find("element 63 of head 3, token 8, is "), std::string::npos) << wrong.warnings[0];
}

TEST(opencl_self_test, what_is_forced_stays) {
    const Left forced([](const Capabilities&) { return true; }, "shape=subgroup");
    EXPECT_EQ(forced.shape(), "subgroup");
    EXPECT_TRUE(forced.warnings.empty());
}

// With a processor taken for a GPU: the kernel is compiled and run.
TEST(opencl_self_test, a_device_is_tested_when_a_context_is_made) {
    std::vector<std::string> warnings;
    DeviceRequest request = cpu_request();
    request.log = [&](int32_t level, const std::string& text) {
        if (level == WINNOW_LOG_WARNING) warnings.push_back(text);
    };
    if (!has_device()) WINNOW_SKIP_WITHOUT_POCL("there is no OpenCL device");
    Runtime runtime(request, false, false);
    RuntimeState& state = runtime.state();
    if (state.capabilities.subgroup_sizes == 0 || !state.capabilities.takes_barriers)
        GTEST_SKIP() << state.workers.entry.info.platform << " has no subgroups, or no barriers that can be used";
    state.capabilities.type = WINNOW_DEVICE_GPU;
    const uint64_t compiled = state.programs.built() + state.programs.loaded();
    const SdpaLauncher launcher(runtime, VariantOptions{});
    EXPECT_GT(state.programs.built() + state.programs.loaded(), compiled);
    EXPECT_EQ(kernel_shape(state.capabilities), "subgroup");
    EXPECT_EQ(state.launches, 0u);
    EXPECT_TRUE(warnings.empty()) << warnings[0];
}

} // namespace
} // namespace winnow::opencl
