// The disk cache of programs from end to end: what one context compiled the next one loads, nothing damaged is used,
// and a program whose text changed is another one.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "open_backend.hpp"
#include "opencl/runtime_state.hpp"
#include "opencl_test.hpp"
#include "temporary_folder.hpp"

namespace winnow::opencl {
namespace {

namespace fs = std::filesystem;

class opencl_program_reuse : public testing::Test {
protected:
    void SetUp() override {
        ASSERT_NE(std::getenv("XDG_CACHE_HOME"), nullptr);
        outer_ = std::getenv("XDG_CACHE_HOME");
        ::setenv("XDG_CACHE_HOME", directory_.c_str(), 1);
    }
    void TearDown() override { ::setenv("XDG_CACHE_HOME", outer_.c_str(), 1); }

    // The complement of the byte in the middle of every entry. Returns how many there are.
    size_t damage() const {
        size_t count = 0;
        for (const auto& entry : fs::directory_iterator(directory_ / "winnow")) {
            if (entry.path().filename() == "lock") continue; // of those who write
            std::fstream file(entry.path(), std::ios::binary | std::ios::in | std::ios::out);
            const auto middle = static_cast<std::streamoff>(entry.file_size() / 2);
            file.seekg(middle);
            const int byte = file.get();
            file.seekp(middle);
            file.put(static_cast<char>(~byte));
            ++count;
        }
        return count;
    }

    std::string outer_;
    const TemporaryFolder folder_;
    const fs::path directory_{folder_.path()};
};

winnow_tensor rows(const float* data, int64_t count) {
    winnow_tensor tensor{};
    tensor.struct_size = sizeof tensor;
    tensor.type = WINNOW_TYPE_F32;
    tensor.data = const_cast<float*>(data);
    const int64_t shape[4] = {1, 1, count, 4};
    const int64_t stride[4] = {count * 16, count * 16, 16, 4};
    std::copy_n(shape, 4, tensor.shape);
    std::copy_n(stride, 4, tensor.stride);
    return tensor;
}

// A host's start: a context, one attention whose result is the mean of both values, and the statistics.
winnow_stats start(const winnow_api& api) {
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    winnow_context_desc context_desc{};
    context_desc.struct_size = sizeof context_desc;
    context_desc.device = "cpu";
    winnow_context* context = nullptr;
    char message[1024] = "";
    EXPECT_EQ(api.context_create(&context_desc, &context, message, sizeof message), WINNOW_OK) << message;
    if (context == nullptr) return stats;

    const float zeros[8] = {};
    const float values[8] = {1, 2, 3, 4, 5, 8, 11, 14};
    float result[4] = {};
    const winnow_tensor q = rows(zeros, 1), k = rows(zeros, 2), v = rows(values, 2), out = rows(result, 1);
    winnow_sdpa_desc desc{};
    desc.struct_size = sizeof desc;
    desc.q = &q;
    desc.k = &k;
    desc.v = &v;
    desc.out = &out;
    EXPECT_EQ(api.sdpa(context, &desc, nullptr), WINNOW_OK) << api.context_message(context);
    EXPECT_EQ(api.finish(context), WINNOW_OK);
    for (int i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(result[i], (values[i] + values[i + 4]) / 2) << i;
    EXPECT_EQ(api.context_stats(context, &stats), WINNOW_OK);
    EXPECT_EQ(api.context_destroy(context), WINNOW_OK);
    return stats;
}

TEST_F(opencl_program_reuse, the_second_context_loads_what_the_first_built_and_damage_is_built_again) {
    const tools::OpenBackend opened("opencl");
    const winnow_api& api = opened.api();

    const winnow_stats first = start(api);
    EXPECT_GT(first.programs_built, 0u);
    EXPECT_EQ(first.programs_loaded, 0u);
    const winnow_stats second = start(api);
    EXPECT_EQ(second.programs_built, 0u);
    EXPECT_EQ(second.programs_loaded, first.programs_built);

    EXPECT_EQ(damage(), first.programs_built);
    const winnow_stats third = start(api);
    EXPECT_EQ(third.programs_built, first.programs_built);
    EXPECT_EQ(third.programs_loaded, 0u);
    const winnow_stats fourth = start(api);
    EXPECT_EQ(fourth.programs_built, 0u);
    EXPECT_EQ(fourth.programs_loaded, first.programs_built);
}

TEST_F(opencl_program_reuse, another_text_of_the_same_name_and_length_is_another_program) {
    const auto built = [&](std::string_view source) {
        RuntimeState state(cpu_request());
        const uint64_t before = state.programs.built();
        state.programs.kernel_of_source("name", source, "f", {});
        return state.programs.built() - before;
    };
    constexpr std::string_view one = "kernel void f(global int* x) { x[0] = 1; }";
    constexpr std::string_view two = "kernel void f(global int* x) { x[0] = 2; }";
    EXPECT_EQ(built(one), 1u);
    EXPECT_EQ(built(two), 1u);
    EXPECT_EQ(built(one), 0u);
    EXPECT_EQ(built(two), 0u);
}

// own_builtins.h takes the place of the driver's header in sources that have it; where it cannot, that is said.
TEST_F(opencl_program_reuse, what_own_declarations_lack_is_compiled_with_the_drivers) {
    std::vector<std::string> warnings;
    DeviceRequest request = cpu_request();
    request.log = [&](int32_t level, const std::string& text) {
        if (level == WINNOW_LOG_WARNING) warnings.push_back(text);
    };
    RuntimeState state(request);
    if (std::string_view(state.workers.entry.info.platform) != "Portable Computing Language")
        WINNOW_SKIP_WITHOUT_POCL("the device is not PoCL's");
    constexpr std::string_view declared = "#ifdef OWN_BUILTINS\n"
                                          "__attribute__((overloadable, const)) float sqrt(float);\n"
                                          "#endif\n"
                                          "kernel void f(global float* x) { x[0] = sqrt(x[0]); }";
    constexpr std::string_view undeclared = "#ifdef OWN_BUILTINS\n#endif\n"
                                            "kernel void f(global float* x) { x[0] = sqrt(x[0]); }";
    constexpr std::string_view wrong = "#ifdef OWN_BUILTINS\n#endif\nkernel void f(global float* x) { x[0] = y; }";
    state.programs.kernel_of_source("declared", declared, "f", {});
    EXPECT_THROW(state.programs.kernel_of_source("wrong", wrong, "f", {}), Error);
    EXPECT_TRUE(warnings.empty()) << warnings.front();
    state.programs.kernel_of_source("undeclared", undeclared, "f", {});
    ASSERT_EQ(warnings.size(), 1u);
    EXPECT_NE(warnings[0].find("undeclared with"), std::string::npos) << warnings[0];
    EXPECT_NE(warnings[0].find("sqrt"), std::string::npos) << warnings[0];
}

TEST_F(opencl_program_reuse, no_entry_has_intermediate_code_of_pocl) {
    RuntimeState state(cpu_request());
    if (std::string_view(state.workers.entry.info.platform) != "Portable Computing Language")
        WINNOW_SKIP_WITHOUT_POCL("the device is not PoCL's");
    state.programs.kernel_of_source("name", "kernel void f(global int* x) { x[0] = 1; }", "f", {});
    uint64_t entries = 0;
    for (const auto& entry : fs::directory_iterator(directory_ / "winnow")) {
        if (entry.path().extension() != ".program") continue;
        std::ifstream file(entry.path(), std::ios::binary);
        const std::string bytes{std::istreambuf_iterator<char>(file), {}};
        EXPECT_NE(bytes.find("poclbin"), std::string::npos);
        EXPECT_EQ(bytes.find("BC\xc0\xde"), std::string::npos) << "LLVM's bitcode begins so";
        ++entries;
    }
    EXPECT_EQ(entries, state.programs.built());
    EXPECT_GT(entries, 0u);
}

} // namespace
} // namespace winnow::opencl
