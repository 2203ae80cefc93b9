// WINNOW_DRIVER on machines whose ICD loader finds drivers with and without devices, or none. Each case is a process of
// its own, as the loader looks for drivers once.
#include "opencl/driver_library.hpp"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "opencl/platform.hpp"
#include "opencl/quirks.hpp"
#include "opencl_test.hpp"
#include "temporary_folder.hpp"

namespace winnow::opencl {
namespace {

constexpr const char* with_device = WINNOW_STUB_DRIVER;
constexpr const char* without_device = WINNOW_STUB_DRIVER_WITHOUT_DEVICE;
constexpr const char* tagged = WINNOW_STUB_DRIVER_TAGGED;

// The library of the driver that has a platform: where the code of its functions comes from.
std::string library_of(cl_platform_id platform) {
    Dl_info info{};
    const auto* const table = *reinterpret_cast<void* const* const*>(platform);
    return ::dladdr(table[0], &info) != 0 ? info.dli_fname : "";
}

// PoCL's, asked for by the process that starts others: they must not use the loader before it is told what there is.
const char* pocl_library() {
    constexpr const char* variable = "WINNOW_TEST_POCL";
    if (std::getenv(variable) == nullptr)
        for (const DeviceEntry& entry : list_devices())
            if (entry.info.platform == pocl_platform) ::setenv(variable, library_of(entry.platform).c_str(), 1);
    return std::getenv(variable);
}

class opencl_driver_library : public testing::Test {
protected:
    void SetUp() override { GTEST_FLAG_SET(death_test_style, "threadsafe"); } // the child begins anew

    // What the process sees: the system's drivers, of which there may be none, and WINNOW_DRIVER.
    void set(const std::vector<std::string>& of_system, const std::string& named) const {
        for (size_t i = 0; i < of_system.size(); ++i)
            std::ofstream(system_.file(std::to_string(i) + ".icd")) << of_system[i] << "\n";
        ::setenv("OCL_ICD_VENDORS", system_.path().c_str(), 1);
        ::setenv("WINNOW_DRIVER", named.c_str(), 1);
        ::unsetenv("WINNOW_DEVICE");
    }

    static const char* state_of(const char* library) {
        return ::dlopen(library, RTLD_LAZY | RTLD_NOLOAD) != nullptr ? "open" : "left alone";
    }

    // Ends the process after telling which platforms have devices and which stubs are open, or what a context without a
    // wish is refused with.
    [[noreturn]] static void list() {
        try {
            const std::vector<DeviceEntry> devices = list_devices();
            if (devices.empty()) select_device(devices, "", false);
            for (const DeviceEntry& entry : devices) std::cerr << "[" << entry.info.platform << "]";
            std::cerr << " " << state_of(with_device) << ", the one without device " << state_of(without_device);
        } catch (const Error& error) {
            std::cerr << error.what();
        }
        std::exit(0);
    }

    // Ends the process, with 0 where the device of WINNOW_DRIVER computes.
    [[noreturn]] static void compute() {
        try {
            DeviceRequest request = cpu_request();
            std::string said;
            request.log = [&](int32_t, const std::string& text) { said += text + "\n"; };
            const auto device = backend::create(request); // which tries a kernel
            std::cerr << said;
        } catch (const Error& error) {
            std::cerr << error.what();
            std::exit(1);
        }
        std::exit(0);
    }

    TemporaryFolder system_;
};

TEST_F(opencl_driver_library, is_opened_where_there_is_no_other_driver) {
    const auto run = [&] {
        set({}, with_device);
        list();
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^\\[Stub\\] open, the one without device left alone$");
}

TEST_F(opencl_driver_library, tells_the_uuid_of_its_device) {
    const auto run = [&] {
        set({}, with_device);
        const auto uuid = device_uuid(list_devices().front().devices.front());
        std::cerr << std::string(uuid.begin(), uuid.end());
        std::exit(0);
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^0123456789abcdef$");
}

TEST_F(opencl_driver_library, is_opened_where_the_systems_driver_has_no_device) {
    const auto run = [&] {
        set({without_device}, with_device);
        list();
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^\\[Stub\\] open, the one without device open$");
}

TEST_F(opencl_driver_library, is_left_alone_where_the_system_has_a_device) {
    const TemporaryFolder folder;
    const std::string copy = folder.file("libsystem.so"); // another file, so that the named one can be told from it
    std::ofstream(copy, std::ios::binary) << std::ifstream(with_device, std::ios::binary).rdbuf();
    const auto run = [&] {
        set({copy}, with_device);
        list();
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^\\[Stub\\] left alone, ");
}

TEST_F(opencl_driver_library, one_of_several_is_enough) {
    const auto run = [&] {
        set({}, std::string("/nonesuch.so::") + without_device + ":" + with_device);
        list();
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "^\\[Stub\\] open, the one without device open$");
}

TEST_F(opencl_driver_library, what_is_wrong_with_each_is_said) {
    const auto run = [&](const std::string& named) {
        set({}, named);
        list();
    };
    EXPECT_EXIT(run("/nonesuch.so"), testing::ExitedWithCode(0),
                "no driver of the system offers a device; \"/nonesuch.so\" \\(of WINNOW_DRIVER\\) cannot be opened: "
                ".*No such file.*; install an OpenCL driver");
    EXPECT_EXIT(run("libm.so.6"), testing::ExitedWithCode(0),
                "\"libm.so.6\" \\(of WINNOW_DRIVER\\) is no OpenCL driver.*install an OpenCL driver");
    EXPECT_EXIT(run(std::string(without_device) + ":/nonesuch.so"), testing::ExitedWithCode(0),
                "offers no device; .*cannot be opened.*install an OpenCL driver");
    EXPECT_EXIT(run(tagged), testing::ExitedWithCode(0), "has to be opened by the ICD loader");
}

TEST_F(opencl_driver_library, without_any_driver_it_is_said_what_to_install) {
    const auto run = [&] {
        set({}, "");
        list();
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "no OpenCL driver .*apt install.*pip install.*WINNOW_DRIVER");
}

TEST_F(opencl_driver_library, pocl_computes_as_it_does_behind_the_loader) {
    const char* const library = pocl_library();
    if (library == nullptr) WINNOW_SKIP_WITHOUT_POCL("there is no PoCL");
    const auto run = [&] {
        set({}, library);
        compute();
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "libpocl[^\n]* \\(of WINNOW_DRIVER\\) is used\n");
}

TEST_F(opencl_driver_library, pocl_gets_another_folder_there_too) {
    const char* const library = pocl_library();
    if (library == nullptr) WINNOW_SKIP_WITHOUT_POCL("there is no PoCL");
    const auto run = [&] {
        ::setenv("POCL_CACHE_DIR", "/proc/nonesuch", 1);
        set({}, library);
        compute();
    };
    EXPECT_EXIT(run(), testing::ExitedWithCode(0), "winnow-pocl-.* instead.*\\(of WINNOW_DRIVER\\) is used\n");
}

} // namespace
} // namespace winnow::opencl
