// Which device a wish chooses, on machines that are made up here.
#include "opencl/platform.hpp"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "device/device.hpp"

namespace winnow::opencl {
namespace {

DeviceEntry device(const char* name, const char* platform, uint32_t type, size_t count = 1) {
    DeviceEntry entry;
    std::snprintf(entry.info.name, sizeof entry.info.name, "%s", name);
    std::snprintf(entry.info.platform, sizeof entry.info.platform, "%s", platform);
    entry.info.type = type;
    entry.platform = reinterpret_cast<cl_platform_id>(static_cast<uintptr_t>(platform[0])); // only compared
    entry.devices.resize(count);
    return entry;
}

class opencl_select_device : public testing::Test {
protected:
    void SetUp() override { ::unsetenv("WINNOW_DEVICE"); }
    void TearDown() override { ::unsetenv("WINNOW_DEVICE"); }

    std::string select(const std::string& wish, bool host_threads = false) const {
        return select_device(devices_, wish, host_threads).info.name;
    }

    std::vector<DeviceEntry> devices_{
        device("pthread", "Portable", WINNOW_DEVICE_CPU), device("basic", "Portable", WINNOW_DEVICE_CPU, 2),
        device("Ryzen", "Vendor", WINNOW_DEVICE_CPU), device("Arc A770", "Vendor", WINNOW_DEVICE_GPU),
        device("Adreno 750", "Qualcomm", WINNOW_DEVICE_GPU)};
};

TEST_F(opencl_select_device, nothing_said_takes_the_first_gpu_else_the_first_device) {
    EXPECT_EQ(select(""), "Arc A770");
    devices_.resize(3);
    EXPECT_EQ(select(""), "pthread");
}

TEST_F(opencl_select_device, words_numbers_and_parts_of_names) {
    EXPECT_EQ(select("gpu"), "Arc A770");
    EXPECT_EQ(select("CPU"), "pthread");
    EXPECT_EQ(select("1"), "basic");
    EXPECT_EQ(select("4"), "Adreno 750");
    EXPECT_EQ(select("adreno"), "Adreno 750");
    EXPECT_EQ(select("vendor"), "Ryzen");
    EXPECT_EQ(select(" a770 "), "Arc A770");
}

// Platforms, devices and vendors as the drivers name them.
TEST_F(opencl_select_device, what_people_call_drivers) {
    devices_ = {device("pthread-haswell-Intel(R) Xeon(R) Processor", "Portable Computing Language", WINNOW_DEVICE_CPU),
                device("Intel(R) Arc(TM) A770 Graphics", "Intel(R) OpenCL Graphics", WINNOW_DEVICE_GPU),
                device("NVIDIA H200", "NVIDIA CUDA", WINNOW_DEVICE_GPU),
                device("gfx1100", "AMD Accelerated Parallel Processing", WINNOW_DEVICE_GPU),
                device("AMD Radeon Graphics (radeonsi, navi31)", "rusticl", WINNOW_DEVICE_GPU),
                device("QUALCOMM Adreno(TM)", "QUALCOMM Snapdragon(TM)", WINNOW_DEVICE_GPU),
                device("Mali-G710 r0p0", "ARM Platform", WINNOW_DEVICE_GPU),
                device("TinyGPU", "Some Platform", WINNOW_DEVICE_ACCELERATOR)};
    std::snprintf(devices_.back().info.vendor, sizeof devices_.back().info.vendor, "Tiny Corp.");
    for (const auto& [word, index] : {std::pair("pocl", 0u),
                                      {"PoCL", 0u},
                                      {"intel", 1u},
                                      {"nvidia", 2u},
                                      {"cuda", 2u},
                                      {"amd", 3u},
                                      {"rocm", 3u},
                                      {"radeon", 3u},
                                      {"rusticl", 4u},
                                      {"mesa", 4u},
                                      {"adreno", 5u},
                                      {"qualcomm", 5u},
                                      {"mali", 6u},
                                      {"arm", 6u},
                                      {"tiny corp", 7u}}) {
        EXPECT_EQ(select(word), devices_[index].info.name) << word;
        ::setenv("WINNOW_DEVICE", word, 1);
        EXPECT_EQ(select(""), devices_[index].info.name) << word;
        ::unsetenv("WINNOW_DEVICE");
    }
    devices_.resize(1); // without a driver of Intel's the processor is
    EXPECT_EQ(select("intel"), devices_[0].info.name);
    EXPECT_THROW(select("nvidia"), Error);
}

TEST_F(opencl_select_device, the_environment_answers_where_the_host_says_nothing) {
    ::setenv("WINNOW_DEVICE", "adreno", 1);
    EXPECT_EQ(select(""), "Adreno 750");
    EXPECT_EQ(select("0"), "pthread");
}

TEST_F(opencl_select_device, host_threads_take_the_multiple_device_of_the_same_platform) {
    EXPECT_EQ(select("cpu", true), "basic");
    EXPECT_EQ(select("0", true), "basic");
    EXPECT_EQ(select("basic", true), "basic");
    EXPECT_EQ(select("ryzen", true), "Ryzen");
    EXPECT_EQ(select("", true), "Arc A770");
}

TEST_F(opencl_select_device, what_does_not_exist_is_refused_with_a_list_of_what_does) {
    for (const char* wish : {"nonesuch", "5", "99999999999999999999", "accelerator"}) {
        try {
            select(wish);
            FAIL() << wish;
        } catch (const Error& error) {
            EXPECT_EQ(error.status(), WINNOW_ERROR_NOT_FOUND);
            const std::string text = error.what();
            EXPECT_NE(text.find(wish), std::string::npos) << text;
            for (const DeviceEntry& entry : devices_) EXPECT_NE(text.find(entry.info.name), std::string::npos) << text;
        }
    }
    devices_.clear();
    EXPECT_THROW(select(""), Error);
    EXPECT_THROW(select("gpu"), Error);
}

TEST(opencl_list_devices, a_platform_that_fails_is_left_out_and_said) {
    const auto id = [](char name) { return reinterpret_cast<cl_platform_id>(static_cast<uintptr_t>(name)); };
    const std::array platforms{id('B'), id('P'), id('E')};
    const auto list = [&](cl_platform_id platform) -> std::vector<DeviceEntry> {
        if (platform == id('B')) throw Error(WINNOW_ERROR_DEVICE, "clGetDeviceIDs: broken");
        return platform == id('E') ? std::vector<DeviceEntry>{}
                                   : std::vector<DeviceEntry>{device("pthread", "Portable", WINNOW_DEVICE_CPU)};
    };
    std::vector<std::string> said;
    const Log log = [&](int32_t level, const std::string& text) {
        EXPECT_EQ(level, WINNOW_LOG_WARNING);
        said.push_back(text);
    };
    EXPECT_EQ(gather_devices(platforms, list, log).size(), 1u);
    ASSERT_EQ(said.size(), 1u);
    EXPECT_NE(said.front().find("clGetDeviceIDs: broken"), std::string::npos) << said.front();
    const std::array without_devices{id('B'), id('E')};
    EXPECT_THROW(gather_devices(without_devices, list, log), Error);
    EXPECT_TRUE(gather_devices(std::array{id('E')}, list, log).empty());
}

// The first to ask in a process wakes the drivers, and others ask meanwhile.
TEST(opencl_list_devices, threads_that_ask_at_once_find_the_same) {
    std::array<size_t, 8> found{};
    std::atomic<int> waiting{static_cast<int>(found.size())};
    std::vector<std::thread> threads;
    for (size_t& count : found)
        threads.emplace_back([&waiting, &count] {
            --waiting;
            while (waiting > 0) std::this_thread::yield();
            count = list_devices().size();
        });
    for (std::thread& thread : threads) thread.join();
    for (const size_t count : found) EXPECT_EQ(count, list_devices().size());
}

} // namespace
} // namespace winnow::opencl
