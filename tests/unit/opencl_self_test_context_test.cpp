// The self-test as a context runs it, on a driver that says that it has a GPU (gpu_layer.c), and miscompiles what a
// test names: what is wrong is convicted, and results are right all the same.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "opencl/self_test_cases.hpp"
#include "opencl_test.hpp"
#include "temporary_folder.hpp"

namespace winnow::opencl {
namespace {

// Compiled programs, and what was found, are a test's own.
class opencl_self_test_context : public testing::Test {
protected:
    void SetUp() override {
        if (std::getenv("WINNOW_UNIT_GPU") == nullptr) GTEST_SKIP() << "WINNOW_UNIT_GPU does not say that there is one";
        outer_ = std::getenv("XDG_CACHE_HOME");
        ::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1);
    }
    void TearDown() override {
        if (!outer_.empty()) ::setenv("XDG_CACHE_HOME", outer_.c_str(), 1);
        ::unsetenv("WINNOW_LAYER_TEXT");
    }
    static void miscompile(const char* text, const char* taken_for) {
        ::setenv("WINNOW_LAYER_TEXT", text, 1);
        ::setenv("WINNOW_LAYER_TAKEN_FOR", taken_for, 1);
    }

    std::unique_ptr<Device> make() {
        warnings_.clear();
        tested_.clear();
        DeviceRequest request = cpu_request("optimize=off");
        request.device = "gpu";
        request.log = [this](int32_t level, const std::string& text) {
            if (level == WINNOW_LOG_WARNING) warnings_.push_back(text);
            if (text.rfind("self-test: ", 0) == 0) tested_.push_back(text);
        };
        return backend::create(request);
    }
    static std::string shape_of(const Device& device) {
        winnow_device_info info{};
        device.info(info);
        return info.kernel_shape;
    }

    void expect_one_warning(const std::string& beginning) const {
        ASSERT_EQ(warnings_.size(), 1u);
        EXPECT_EQ(warnings_[0].rfind(beginning, 0), 0u) << warnings_[0];
    }

    std::vector<std::string> warnings_, tested_;

private:
    const TemporaryFolder folder_;
    std::string outer_;
};

TEST_F(opencl_self_test_context, a_device_is_tested_once) {
    const std::unique_ptr<Device> first = make();
    EXPECT_EQ(shape_of(*first), "subgroup");
    EXPECT_EQ(tested_.size(), 2u) << "attention of a token and of a prompt";
    for (const char* operation : {"hadamard", "slot_edit", "slot_copy"})
        for (const OperationCase& each : operation_cases())
            for (int time = 0; each.operation == operation && time < 2; ++time) EXPECT_EQ(each.run(*first), "");
    EXPECT_EQ(tested_.size(), 5u);
    winnow_stats stats{};
    first->stats(stats);
    EXPECT_EQ(stats.kernel_launches, 2u + 2 * 3 + 2) << "what is tested is no launch of the host's";
    EXPECT_EQ(test_fused_attention(*first), "");
    EXPECT_EQ(tested_.size(), 7u) << "fused attention, and what would append a token where that did not";
    const std::unique_ptr<Device> second = make();
    EXPECT_EQ(test_slot_edit(*second), "");
    EXPECT_EQ(test_fused_attention(*second), "");
    EXPECT_EQ(test_packed_rows(*second), "");
    EXPECT_EQ(tested_.size(), 1u) << "packed rows, before the first launch over them";
    tested_.clear();
    const std::unique_ptr<Device> third = make();
    EXPECT_EQ(test_packed_rows(*third), "");
    EXPECT_TRUE(tested_.empty()) << tested_[0];
    EXPECT_TRUE(warnings_.empty()) << warnings_[0];
}

TEST_F(opencl_self_test_context, an_operation_that_is_miscompiled_gives_the_next_variant) {
    miscompile("|| importance < threshold ||", "|| importance > threshold ||"); // of the group's kernel alone
    for (int time = 0; time < 2; ++time) {                                      // the second time as it was found
        const std::unique_ptr<Device> device = make();
        EXPECT_EQ(test_slot_evict(*device), "");
        EXPECT_EQ(test_slot_copy(*device), "");
        EXPECT_EQ(shape_of(*device), "subgroup");
        expect_one_warning("this driver gets slot_evict with the shape workgroup wrong, so another shape is used: "
                           "slot ");
    }
}

// Tiles on the border of what a row sees are taken for tiles of which it sees everything.
TEST_F(opencl_self_test_context, prompts_that_are_miscompiled_are_left_to_the_kernel_of_few_tokens) {
    miscompile("#define TILE_MIXED 1", "#define TILE_MIXED 2");
    const std::unique_ptr<Device> device = make();
    EXPECT_EQ(test_prompt(*device), "");
    EXPECT_EQ(shape_of(*device), "subgroup");
    expect_one_warning("this driver gets sdpa_prefill of many query tokens wrong");
}

TEST_F(opencl_self_test_context, attention_that_is_miscompiled_gives_the_next_variant) {
    miscompile("return sub_group_shuffle_xor(x, mask);", "return x;");
    const std::unique_ptr<Device> device = make();
    EXPECT_EQ(test_attention(*device), "");
    EXPECT_EQ(shape_of(*device), "workgroup");
    ASSERT_EQ(warnings_.size(), 1u);
}

// Codes of turbo formats are looked up wrong, which attention over f16 has none of.
TEST_F(opencl_self_test_context, fused_attention_that_is_miscompiled_gives_the_next_variant) {
    miscompile("+ LOOKUP_AT_##table, index)", "+ LOOKUP_AT_##table, (index) & (SUBGROUP_SIZE ? 7 : 15))");
    for (int time = 0; time < 2; ++time) { // the second time as it was found
        const std::unique_ptr<Device> device = make();
        EXPECT_EQ(shape_of(*device), "subgroup");
        EXPECT_TRUE(warnings_.empty()) << warnings_[0];
        EXPECT_EQ(test_fused_attention(*device), "");
        EXPECT_EQ(shape_of(*device), "workgroup");
        expect_one_warning("this driver gets a step of a cache wrong with the shape subgroup, so attention does not "
                           "use the shape subgroup: element 0 of row 0 of head 0 is ");
    }
}

} // namespace
} // namespace winnow::opencl
