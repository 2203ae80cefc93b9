// Which wishes for a device the reference backend answers.
#include "reference/device.hpp"

#include <gtest/gtest.h>
#include <stdlib.h>

namespace winnow::reference {
namespace {

bool takes(const char* device) {
    DeviceRequest request;
    request.device = device;
    request.log = [](int32_t, const std::string&) {};
    try {
        const ReferenceDevice made(request);
        return true;
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_NOT_FOUND);
        return false;
    }
}

TEST(reference_device, is_the_only_one) {
    for (const char* wish : {"", "0", "cpu", "CPU", "reference", "refer"}) EXPECT_TRUE(takes(wish)) << wish;
    for (const char* wish : {"1", "gpu", "pocl", "nonesuch"}) EXPECT_FALSE(takes(wish)) << wish;
}

TEST(reference_device, what_chooses_a_device_of_opencl_is_no_matter_of_its) {
    for (const char* wish : {"gpu", "pocl", "3", "Portable Computing Language"}) {
        ASSERT_EQ(::setenv("WINNOW_DEVICE", wish, 1), 0);
        EXPECT_TRUE(takes("")) << wish;
        EXPECT_FALSE(takes("gpu")) << wish;
    }
    ::unsetenv("WINNOW_DEVICE");
}

} // namespace
} // namespace winnow::reference
