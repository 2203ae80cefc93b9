// PoCL on a machine whose user has no folder for compiled kernels. Each case is a process of its own, as PoCL looks for
// its folder once.
#include "opencl/pocl_folder.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "open_backend.hpp"
#include "opencl/platform.hpp"
#include "opencl/quirks.hpp"
#include "opencl_test.hpp"
#include "temporary_folder.hpp"

namespace winnow::opencl {
namespace {

constexpr const char* impossible = "/proc/nonesuch"; // for root, too
constexpr const char* variables[] = {"POCL_CACHE_DIR", "XDG_CACHE_HOME", "HOME"};
constexpr const char* told = "WINNOW_TEST_TOLD"; // a file in which a process tells of its folder

class opencl_pocl_folder : public testing::Test {
protected:
    void SetUp() override {
        GTEST_FLAG_SET(death_test_style, "threadsafe"); // the child begins anew
        for (const char* variable : variables) {
            const char* const value = std::getenv(variable);
            if (value != nullptr) before_.emplace(variable, value);
            ::unsetenv(variable);
        }
        ASSERT_EQ(::setenv(told, temporary_.file("told").c_str(), 0), 0); // the child has its parent's
    }
    void TearDown() override {
        ::unsetenv(told);
        for (const char* variable : variables) ::unsetenv(variable);
        for (const auto& [variable, value] : before_) ::setenv(variable.c_str(), value.c_str(), 1);
    }

    // Ends the process: with 0 where PoCL computes, after writing to stderr what the log was told.
    [[noreturn]] void compute() const {
        std::string said;
        DeviceRequest request = plain_request();
        request.device = "pocl";
        request.log = [&](int32_t level, const std::string& text) {
            if (level <= WINNOW_LOG_WARNING) said += text + "\n";
        };
        int code = 0;
        try {
            const auto device = backend::create(request); // which tries a kernel
            struct stat folder {};
            const char* const path = std::getenv("POCL_CACHE_DIR");
            if (path != nullptr && ::stat(path, &folder) == 0) {
                std::ofstream(std::getenv(told))
                    << path << " " << std::oct << (folder.st_mode & 07777) << " " << !std::filesystem::is_empty(path);
            }
        } catch (const Error& error) {
            said += error.what();
            code = 1;
        }
        std::cerr << said;
        std::exit(code);
    }

    // Ends the process: with 0 where PoCL compiles for the shared object, closed and opened again, after telling of its
    // folder.
    [[noreturn]] static void compute_twice() {
        int code = 0;
        try {
            for (int time = 0; time < 2; ++time) {
                const tools::OpenBackend opened("opencl");
                winnow_context_desc desc{};
                desc.struct_size = sizeof desc;
                desc.device = "pocl";
                const tools::OwnedContext context = opened.make_context(desc); // which tries a kernel
                std::ofstream(std::getenv(told), std::ios::app) << std::getenv("POCL_CACHE_DIR") << "\n";
            }
        } catch (const std::runtime_error& error) {
            std::cerr << error.what();
            code = 1;
        }
        std::exit(code);
    }

    TemporaryFolder temporary_;
    std::map<std::string, std::string> before_;
};

bool has_pocl() {
    cl_uint count = 0;
    std::vector<cl_platform_id> platforms(8);
    if (clGetPlatformIDs(8, platforms.data(), &count) != CL_SUCCESS) return false;
    for (cl_uint i = 0; i < count; ++i)
        if (platform_text(platforms[i], CL_PLATFORM_NAME) == pocl_platform) return true;
    return false;
}

TEST_F(opencl_pocl_folder, another_one_takes_the_place_of_one_that_cannot_be_made) {
    if (!has_pocl()) WINNOW_SKIP_WITHOUT_POCL("there is no PoCL");
    for (const auto& [variable, named] : {std::pair("POCL_CACHE_DIR", "\"/proc/nonesuch\": "),
                                          {"XDG_CACHE_HOME", "\"/proc/nonesuch/pocl/kcache\": "},
                                          {"HOME", "\"/proc/nonesuch/\\.cache/pocl/kcache\": "}}) {
        ASSERT_EQ(::setenv(variable, impossible, 1), 0);
        EXPECT_EXIT(compute(), testing::ExitedWithCode(0),
                    std::string("PoCL cannot use its folder for compiled kernels, ") + named)
            << variable;
        ::unsetenv(variable);
    }
}

TEST_F(opencl_pocl_folder, it_is_gone_with_the_process_and_nobody_else_may_read_it) {
    if (!has_pocl()) WINNOW_SKIP_WITHOUT_POCL("there is no PoCL");
    ASSERT_EQ(::setenv("POCL_CACHE_DIR", impossible, 1), 0);
    EXPECT_EXIT(compute(), testing::ExitedWithCode(0), "winnow-pocl-.* instead");
    std::string folder, mode, was_used;
    std::ifstream(temporary_.file("told")) >> folder >> mode >> was_used;
    EXPECT_NE(folder.find("winnow-pocl-"), std::string::npos) << folder;
    EXPECT_EQ(mode, "700");
    EXPECT_EQ(was_used, "1");
    EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
}

// PoCL stays in the process, and keeps to the folder that it had.
TEST_F(opencl_pocl_folder, a_backend_that_is_opened_again_has_the_same_one) {
    if (!has_pocl()) WINNOW_SKIP_WITHOUT_POCL("there is no PoCL");
    ASSERT_EQ(::setenv("XDG_CACHE_HOME", impossible, 1), 0); // no program of the first time is there the second time
    EXPECT_EXIT(compute_twice(), testing::ExitedWithCode(0), "");
    std::string first, second;
    std::ifstream(temporary_.file("told")) >> first >> second;
    EXPECT_NE(first.find("winnow-pocl-"), std::string::npos) << first;
    EXPECT_EQ(first, second);
    EXPECT_FALSE(std::filesystem::exists(first)) << first;
}

// A child has its parent's variables, and may outlive it.
TEST_F(opencl_pocl_folder, one_of_another_process_is_left_to_that) {
    if (!has_pocl()) WINNOW_SKIP_WITHOUT_POCL("there is no PoCL");
    const std::string others = temporary_.file("winnow-pocl-abcdef");
    for (const bool is_gone : {true, false}) {
        if (!is_gone) std::filesystem::create_directory(others);
        ASSERT_EQ(::setenv("POCL_CACHE_DIR", others.c_str(), 1), 0);
        EXPECT_EXIT(compute(), testing::ExitedWithCode(0), "another process removes it.* instead");
        EXPECT_NE(std::filesystem::exists(others), is_gone);
        std::string folder;
        std::ifstream(temporary_.file("told")) >> folder;
        EXPECT_NE(folder.find("winnow-pocl-"), std::string::npos) << folder;
        EXPECT_FALSE(std::filesystem::exists(folder)) << folder;
    }
    EXPECT_TRUE(std::filesystem::is_empty(others));
}

} // namespace
} // namespace winnow::opencl
