// What all unit tests run in. PoCL has several devices of one core each, which operations are divided among. Compiled
// programs go into a folder of their own: they neither find nor leave anything in the developer's, whose tuning counts
// for nothing, either. WINNOW_UNIT_CACHE names one that outlives the process, for runs of a test in each; else it is
// temporary.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <optional>

#include "temporary_folder.hpp"

namespace winnow {
namespace {

class CacheEnvironment : public testing::Environment {
public:
    void SetUp() override {
        ASSERT_EQ(::setenv("WINNOW_TUNING", "off", 1), 0);
        ASSERT_EQ(::setenv("POCL_DEVICES", "basic basic basic pthread", 0), 0); // before platforms are asked for
        if (const char* kept = std::getenv("WINNOW_UNIT_CACHE")) {
            std::filesystem::create_directories(kept);
            ASSERT_EQ(::setenv("XDG_CACHE_HOME", kept, 1), 0);
            return;
        }
        temporary_.emplace();
        ASSERT_EQ(::setenv("XDG_CACHE_HOME", temporary_->path().c_str(), 1), 0);
    }
    void TearDown() override { temporary_.reset(); }

private:
    std::optional<TemporaryFolder> temporary_;
};

const testing::Environment* const environment = testing::AddGlobalTestEnvironment(new CacheEnvironment);

} // namespace
} // namespace winnow
