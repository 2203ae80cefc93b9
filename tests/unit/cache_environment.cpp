// The unit tests' compiled programs go into a temporary folder: they neither find nor leave anything in the
// developer's own.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <filesystem>
#include <string>

namespace {

class CacheEnvironment : public testing::Environment {
public:
    void SetUp() override {
        std::string name = (std::filesystem::temp_directory_path() / "winnow-unit-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        directory_ = name;
        ASSERT_EQ(::setenv("XDG_CACHE_HOME", name.c_str(), 1), 0);
    }
    void TearDown() override { std::filesystem::remove_all(directory_); }

private:
    std::filesystem::path directory_;
};

const testing::Environment* const environment = testing::AddGlobalTestEnvironment(new CacheEnvironment);

} // namespace
