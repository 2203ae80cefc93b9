// The disk cache of compiled programs where the system's calls fail: a context is made all the same, the log says why
// nothing is kept, and nothing is left beside the entries.
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "session.hpp"
#include "system_faults.hpp"
#include "temporary_folder.hpp"

namespace winnow::faults {
namespace {

class program_file_faults : public testing::Test {
protected:
    void SetUp() override {
        // PoCL keeps compiled kernels below the same variable's folder. Those stay where they are.
        if (const char* const usual = std::getenv("XDG_CACHE_HOME")) {
            ASSERT_EQ(::setenv("POCL_CACHE_DIR", (std::string(usual) + "/pocl/kcache").c_str(), 0), 0);
        }
        ASSERT_EQ(::setenv("XDG_CACHE_HOME", folder_.path().c_str(), 1), 0);
    }
    void TearDown() override { arm_system("", "", 0, 0); }

    // A context that compiles or loads the probe's program; how many of each.
    winnow_stats start() {
        Session session(WINNOW_OPENCL_BACKEND);
        EXPECT_EQ(session.create(), WINNOW_OK) << session.message();
        winnow_stats stats{};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(session.api().context_stats(session.context(), &stats), WINNOW_OK);
        logged_ = session.logged;
        return stats;
    }
    bool log_has(const std::string& text) const {
        return std::any_of(logged_.begin(), logged_.end(),
                           [&](const std::string& line) { return line.find(text) != std::string::npos; });
    }
    std::vector<std::string> left() const {
        std::vector<std::string> names;
        for (const std::string& name : entries())
            if (!name.ends_with(".program")) names.push_back(name);
        return names;
    }
    std::vector<std::string> entries() const {
        std::vector<std::string> names;
        std::error_code absent;
        for (const auto& entry : std::filesystem::directory_iterator(programs_, absent))
            if (entry.path().filename() != "lock") names.push_back(entry.path().filename());
        return names;
    }

    TemporaryFolder folder_;
    const std::string programs_ = folder_.file("winnow");
    std::vector<std::string> logged_;
};

TEST_F(program_file_faults, what_cannot_be_kept_is_said) {
    for (const char* function : {"mkdir", "open", "write", "rename"})
        for (const int error : {ENOSPC, EIO, EACCES}) {
            const std::string what = std::string(function) + ", " + std::generic_category().message(error);
            std::filesystem::remove_all(programs_);
            const bool is_open = std::string(function) == "open"; // the first is that of the lock
            arm_system(programs_, function, is_open ? 2 : 1, error);
            EXPECT_EQ(start().programs_built, 1u) << what;
            ASSERT_EQ(system_failures(), 1u) << what;
            EXPECT_TRUE(log_has("compiled programs are not kept")) << what;
            EXPECT_TRUE(log_has(std::generic_category().message(error))) << what;
            EXPECT_TRUE(log_has(programs_)) << what;
            EXPECT_TRUE(entries().empty()) << what;
        }
    EXPECT_EQ(start().programs_built, 1u);
    EXPECT_EQ(start().programs_loaded, 1u) << "and then it is kept";
}

TEST_F(program_file_faults, what_cannot_be_locked_is_kept_all_the_same) {
    for (const int error : {EACCES, ENOSPC}) {
        std::filesystem::remove_all(programs_);
        arm_system(programs_, "open", 1, error);
        EXPECT_EQ(start().programs_built, 1u) << error;
        EXPECT_EQ(system_failures(), 1u) << error;
        EXPECT_EQ(start().programs_loaded, 1u) << error;
    }
}

TEST_F(program_file_faults, interrupted_and_short_calls_go_on) {
    for (const auto& [function, error] : {std::pair("open", EINTR), {"write", EINTR}, {"write", short_count}}) {
        std::filesystem::remove_all(programs_);
        arm_system(programs_, function, 1, error, 3);
        EXPECT_EQ(start().programs_built, 1u) << function << " " << error;
        EXPECT_GT(system_failures(), 0u) << function << " " << error << " is not reached";
        arm_system("", "", 0, 0);
        EXPECT_EQ(start().programs_loaded, 1u) << function << " " << error;
        EXPECT_TRUE(left().empty()) << function << " " << error;
    }
    for (const int error : {EINTR, short_count}) { // the entry is there now
        arm_system(programs_, "read", 1, error, 3);
        EXPECT_EQ(start().programs_loaded, 1u) << "read " << error;
        EXPECT_GT(system_failures(), 0u) << "read " << error << " is not reached";
    }
}

TEST_F(program_file_faults, an_entry_that_cannot_be_read_is_compiled_again) {
    start();
    for (const int error : {EIO, ESTALE}) {
        arm_system(programs_, "read", 1, error, 2); // it is looked for again once others cannot make it
        EXPECT_EQ(start().programs_built, 1u) << error;
        EXPECT_EQ(system_failures(), 2u) << error;
        EXPECT_EQ(start().programs_loaded, 1u) << error;
    }
}

} // namespace
} // namespace winnow::faults
