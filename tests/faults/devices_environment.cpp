// PoCL's devices before any test asks for one: some that compute in the calling thread, for contexts with threads of
// this program, and the usual one for all others.
#include <gtest/gtest.h>

#include <cstdlib>

namespace winnow::faults {
namespace {

class DevicesEnvironment : public testing::Environment {
    void SetUp() override { ASSERT_EQ(::setenv("POCL_DEVICES", "basic basic pthread", 0), 0); }
};
[[maybe_unused]] const testing::Environment* const devices_environment =
    testing::AddGlobalTestEnvironment(new DevicesEnvironment);

} // namespace
} // namespace winnow::faults
