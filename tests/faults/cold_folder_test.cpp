// What is promised of the folder in which recall has its file (SECURITY.md): nobody else opens what lies there, nothing
// stays, the page cache need not keep what was written, a saved file does not tell where it was.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "recall_cache.hpp"
#include "saved_state.hpp"
#include "system_faults.hpp"
#include "temporary_folder.hpp"

namespace winnow::faults {
namespace {

class cold_folder : public testing::Test {
protected:
    void TearDown() override { arm_system("", "", 0, 0); }

    TemporaryFolder folder_, saved_;
};

TEST_F(cold_folder, a_killed_process_leaves_nothing) {
    const pid_t child = ::fork();
    if (child == 0) {
        RecallCache cache(folder_.path());
        std::string output;
        if (cache.step(0, 100, 1, output) != WINNOW_OK || cache.stats().disk_bytes == 0) ::_exit(1);
        ::raise(SIGKILL);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    EXPECT_TRUE(folder_.names().empty()) << folder_.names().front();
}

// Also where the file system has no files without a name.
TEST_F(cold_folder, nobody_else_sees_the_file) {
    const mode_t before = ::umask(0); // which takes nothing off
    for (const int error : {0, EOPNOTSUPP}) {
        arm_system(folder_.path(), "open", error == 0 ? 0 : 1, error);
        RecallCache cache(folder_.path());
        std::string output;
        ASSERT_EQ(cache.step(0, 100, 1, output), WINNOW_OK) << cache.message();
        EXPECT_EQ(system_failures(), error == 0 ? 0u : 1u);
        EXPECT_TRUE(folder_.names().empty()) << folder_.names().front();
        int found = 0;
        for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
            std::error_code none; // the descriptor of this folder is gone by then
            if (!std::filesystem::read_symlink(entry.path(), none).string().starts_with(folder_.path())) continue;
            const int file = std::stoi(entry.path().filename());
            struct stat status {};
            ASSERT_EQ(::fstat(file, &status), 0);
            EXPECT_EQ(status.st_mode & 07777, 0600u);
            EXPECT_EQ(status.st_nlink, 0u);
            EXPECT_NE(::fcntl(file, F_GETFD) & FD_CLOEXEC, 0) << "a program that is started has it";
            ++found;
        }
        EXPECT_EQ(found, 1);
    }
    ::umask(before);
}

TEST_F(cold_folder, the_system_is_told_to_forget_what_was_written) {
    RecallCache cache(512, "winnow:budget=1M,k=f16,v=f16,recall=" + folder_.path());
    std::string output;
    arm_system(folder_.path(), "", 0, 0);
    ASSERT_EQ(cache.step(0, 130, 1, output), WINNOW_OK) << cache.message();
    ASSERT_EQ(cache.step(0, 110, 2, output), WINNOW_OK) << cache.message(); // now the first part is on the disk
    uint64_t bytes = 0;
    for (const auto& [begin, end] : advised(POSIX_FADV_DONTNEED)) bytes += end - begin;
    EXPECT_GE(bytes, cache.stats().cold_bytes / 4) << "of " << cache.stats().cold_bytes;
}

TEST_F(cold_folder, what_is_saved_does_not_tell_the_folder) {
    RecallCache cache(folder_.path());
    std::string output;
    ASSERT_EQ(cache.step(0, 100, 1, output), WINNOW_OK) << cache.message();
    const std::string path = saved_.file("saved");
    ASSERT_EQ(save_state(cache.caches(), cache.get(), path), WINNOW_OK) << cache.message();
    std::ifstream file(path, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_NE(bytes.find("winnow:"), std::string::npos) << "what is looked for would not be found";
    EXPECT_EQ(bytes.find(folder_.path()), std::string::npos);
}

// No injection: a file system of 32 KiB.
TEST_F(cold_folder, a_full_file_system) {
    if (::mount("tmpfs", folder_.path().c_str(), "tmpfs", 0, "size=32k") != 0)
        GTEST_SKIP() << "SKIPPED: no file system can be mounted here: " << text_of(errno);
    const auto free_blocks = [&] {
        struct statvfs status {};
        EXPECT_EQ(::statvfs(folder_.path().c_str(), &status), 0);
        return status.f_bfree;
    };
    const auto before = free_blocks();
    {
        RecallCache cache(folder_.path()), twin("host");
        EXPECT_TRUE(std::ranges::any_of(
            cache.logged(), [&](const std::string& line) { return line.find("is a tmpfs") != std::string::npos; }));
        std::string output, expected;
        int64_t tokens = 0;
        for (uint64_t seed = 1; tokens < context_tokens; seed += 3) {
            for (int64_t layer = 0; layer < layers; ++layer) {
                const std::string now = cache.portrait();
                const int32_t status = cache.step(layer, 8, seed, output);
                if (status != WINNOW_OK) {
                    EXPECT_EQ(status, WINNOW_ERROR_IO) << cache.message();
                    EXPECT_NE(cache.message().find(text_of(ENOSPC)), std::string::npos) << cache.message();
                    EXPECT_EQ(cache.portrait(), now);
                    tokens = context_tokens;
                    break;
                }
                ASSERT_EQ(twin.step(layer, 8, seed, expected), WINNOW_OK) << twin.message();
                ASSERT_EQ(output, expected) << "seed " << seed;
            }
            if (tokens == context_tokens) break;
            tokens += 8;
            ASSERT_LT(tokens, context_tokens) << "the file system was never full";
        }
        EXPECT_LT(free_blocks(), before);
        EXPECT_EQ(cache.caches().remove(cache.get(), 0, 0, -1), WINNOW_OK) << cache.message();
        EXPECT_EQ(free_blocks(), before) << "space of removed tokens is not given back";
        EXPECT_EQ(cache.step(0, 8, 1, output), WINNOW_OK) << cache.message();
    }
    EXPECT_EQ(free_blocks(), before);
    ::umount(folder_.path().c_str());
}

} // namespace
} // namespace winnow::faults
