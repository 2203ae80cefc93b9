// What tests of the OpenCL backend share: a device on the processor, whole or divided among threads of the host, and
// what a test does where the driver that it needs is missing: skip, or fail where the environment says that PoCL is
// there (WINNOW_REQUIRE_POCL=1), since then the test has lost its device.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "device/device.hpp"
#include "opencl/platform.hpp"

// Returns from the test, as GTEST_SKIP does.
#define WINNOW_SKIP_WITHOUT_POCL(reason)                                                                               \
    do {                                                                                                               \
        if (winnow::opencl::is_pocl_required()) FAIL() << "WINNOW_REQUIRE_POCL is set, but " << (reason);              \
        GTEST_SKIP() << (reason);                                                                                      \
    } while (false)

namespace winnow::opencl {

inline bool is_pocl_required() {
    const char* const value = std::getenv("WINNOW_REQUIRE_POCL");
    return value != nullptr && std::string_view(value) == "1";
}

inline bool has_device() {
    try {
        return !list_devices().empty();
    } catch (const Error&) {
        return false;
    }
}

constexpr const char* undivided = "no platform lists a single-core CPU device several times";

// One thread for each task, as a host without a pool would do it. Counts its calls.
inline void WINNOW_CALL run_in_threads(void* calls, uint32_t count, winnow_task task, void* data) {
    ++*static_cast<std::atomic<int>*>(calls);
    std::vector<std::thread> threads;
    for (uint32_t i = 1; i < count; ++i) threads.emplace_back([=] { task(data, i); });
    task(data, 0);
    for (std::thread& thread : threads) thread.join();
}

// Of any backend.
inline DeviceRequest plain_request() {
    DeviceRequest request;
    request.device = "cpu";
    request.log = [](int32_t, const std::string&) {};
    return request;
}

// Asks OpenCL for a device, with what the environment forces, too, whose operations are divided where there is a count
// of the divisions.
inline DeviceRequest cpu_request(const std::string& variants = "", std::atomic<int>* parallel_calls = nullptr) {
    const char* const forced = std::getenv("WINNOW_UNIT_VARIANTS");
    DeviceRequest request = plain_request();
    request.variants = forced == nullptr ? "" : forced;
    if (!request.variants.empty() && !variants.empty()) request.variants += ",";
    request.variants += variants;
    if (parallel_calls != nullptr) {
        request.parallel_for = run_in_threads;
        request.parallel_user_data = parallel_calls;
    }
    return request;
}

// A device for all tests of a process, or one whose operations are divided.
inline Device& cpu_device() {
    static const std::unique_ptr<Device> device = backend::create(cpu_request());
    return *device;
}
inline Device& divided_device() {
    static std::atomic<int> calls{0};
    static const std::unique_ptr<Device> device = backend::create(cpu_request("", &calls));
    return *device;
}

// A test that has no device is over before its body; whoever has a SetUp of its own asks is_over().
class opencl_test : public testing::Test {
protected:
    void SetUp() override {
        if (!has_device()) WINNOW_SKIP_WITHOUT_POCL("no OpenCL driver offers a device");
    }
    static bool is_over() { return IsSkipped() || HasFatalFailure(); }
};

} // namespace winnow::opencl
