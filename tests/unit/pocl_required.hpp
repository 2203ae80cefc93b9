// What a test does where the driver that it needs is missing: skip, or fail where the environment says that PoCL is
// there (WINNOW_REQUIRE_POCL=1), since then the test has lost its device.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <string_view>

namespace winnow::opencl {

inline bool is_pocl_required() {
    const char* const value = std::getenv("WINNOW_REQUIRE_POCL");
    return value != nullptr && std::string_view(value) == "1";
}

} // namespace winnow::opencl

// Returns from the test, as GTEST_SKIP does.
#define WINNOW_SKIP_WITHOUT_POCL(reason)                                                                               \
    do {                                                                                                               \
        if (winnow::opencl::is_pocl_required()) FAIL() << "WINNOW_REQUIRE_POCL is set, but " << (reason);              \
        GTEST_SKIP() << (reason);                                                                                      \
    } while (false)
