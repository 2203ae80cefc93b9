// Files of caches where the system's calls fail: the status is honest, the message names the file and the system's
// reason, the old file is whole, nothing is left beside it, and the cache goes on.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <iterator>
#include <system_error>

#include "saved_state.hpp"
#include "session.hpp"
#include "system_faults.hpp"
#include "temporary_folder.hpp"

namespace winnow::faults {
namespace {

constexpr int64_t kv_heads = 2, size = 32, context_tokens = 64;

std::string text_of(int error) { return std::generic_category().message(error); }

std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// A cache on the reference backend, which has no threads: a child process can have one, too.
class SmallCache {
public:
    SmallCache() : session_(WINNOW_REFERENCE_BACKEND) {
        EXPECT_EQ(session_.create(), WINNOW_OK) << session_.message();
        winnow_cache_desc desc{};
        desc.struct_size = sizeof desc;
        desc.config = "window:budget=32,residual=16";
        desc.layers = 1;
        desc.q_num_heads = kv_heads;
        desc.kv_num_heads = kv_heads;
        desc.head_size = size;
        desc.context = context_tokens;
        EXPECT_EQ(caches().create(session_.context(), &desc, &cache_), WINNOW_OK) << message();
    }

    void append(int64_t tokens) {
        HostTensor k(WINNOW_TYPE_F32, kv_heads, tokens, size), v(WINNOW_TYPE_F32, kv_heads, tokens, size);
        k.fill(1);
        v.fill(2);
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.k = k.get();
        desc.v = v.get();
        EXPECT_EQ(caches().step(cache_, &desc, nullptr), WINNOW_OK) << message();
    }

    std::vector<int64_t> positions() {
        std::vector<int64_t> all(context_tokens);
        winnow_cache_tokens look{};
        look.struct_size = sizeof look;
        look.capacity = all.size();
        look.positions = all.data();
        EXPECT_EQ(caches().tokens(cache_, 0, 0, 0, &look), WINNOW_OK) << message();
        all.resize(look.count);
        return all;
    }

    int32_t save(const std::string& path) { return save_state(caches(), cache_, path); }
    int32_t load(const std::string& path) { return load_state(caches(), cache_, path); }
    std::string message() const { return session_.message(); }

private:
    const winnow_cache_api& caches() const { return session_.caches(); }
    Session session_;
    winnow_cache* cache_ = nullptr;
};

class file_faults : public testing::Test {
protected:
    void SetUp() override {
        cache_.append(20);
        ASSERT_EQ(cache_.save(path_), WINNOW_OK) << cache_.message();
        old_ = bytes_of(path_);
        cache_.append(3);
    }
    void TearDown() override { arm_system("", "", 0, 0); }

    void expect_refused(int32_t status, int32_t expected, const std::string& reason, const std::string& what) {
        EXPECT_EQ(status, expected) << what << ": " << cache_.message();
        EXPECT_NE(cache_.message().find(path_), std::string::npos) << what << ": " << cache_.message();
        EXPECT_NE(cache_.message().find(reason), std::string::npos) << what << ": " << cache_.message();
    }
    void expect_only_the_file(const std::string& what) {
        EXPECT_EQ(folder_.names(), std::vector<std::string>{"cache"}) << what;
    }

    // Lets the child save over the file, and tells how it ended. `error` happens at its second write.
    pid_t start_child(int error) {
        const pid_t child = ::fork();
        if (child != 0) return child;
        SmallCache other;
        other.append(40);
        arm_system(folder_.path(), "write", 2, error);
        ::_exit(other.save(path_) == WINNOW_OK ? 0 : 1);
    }

    TemporaryFolder folder_;
    const std::string path_ = folder_.file("cache");
    SmallCache cache_;
    std::string old_;
};

TEST_F(file_faults, a_save_that_fails_says_why_and_leaves_the_old_file) {
    for (const char* function : {"open", "write", "fsync", "rename"}) {
        uint64_t failures = 0;
        for (const int error : {ENOSPC, EIO, EACCES, EROFS, EDQUOT})
            for (uint64_t at = 1;; ++at) {
                const std::string what = std::string(function) + " " + std::to_string(at) + ", " + text_of(error);
                const std::string before = bytes_of(path_);
                arm_system(folder_.path(), function, at, error);
                const int32_t status = cache_.save(path_);
                if (system_failures() == 0) {
                    ASSERT_EQ(status, WINNOW_OK) << what << ": " << cache_.message();
                    break;
                }
                ++failures;
                expect_refused(status, WINNOW_ERROR_IO, text_of(error), what);
                expect_only_the_file(what);
                ASSERT_TRUE(bytes_of(path_) == before) << what;
                ASSERT_FALSE(HasFailure()) << what;
            }
        EXPECT_GE(failures, 5u) << function << " is not reached";
    }
}

TEST_F(file_faults, what_is_not_the_files_fault_has_another_status) {
    arm_system(folder_.path(), "open", 1, ENOMEM);
    expect_refused(cache_.save(path_), WINNOW_ERROR_OUT_OF_MEMORY, text_of(ENOMEM), "save");
    arm_system(folder_.path(), "open", 1, ENOMEM);
    expect_refused(cache_.load(path_), WINNOW_ERROR_OUT_OF_MEMORY, text_of(ENOMEM), "load");
    const std::string absent = folder_.file("none/cache");
    EXPECT_EQ(cache_.save(absent), WINNOW_ERROR_NOT_FOUND) << cache_.message();
    EXPECT_NE(cache_.message().find(text_of(ENOENT)), std::string::npos) << cache_.message();
    EXPECT_EQ(cache_.load(absent), WINNOW_ERROR_NOT_FOUND) << cache_.message();
}

TEST_F(file_faults, interrupted_and_short_calls_go_on) {
    struct Injected {
        const char* function;
        int error;
        bool in_save;
    };
    constexpr Injected all[] = {{"open", EINTR, true},       {"write", EINTR, true}, {"write", short_count, true},
                                {"fsync", EINTR, true},      {"open", EINTR, false}, {"read", EINTR, false},
                                {"read", short_count, false}};
    for (const Injected& each : all) {
        uint64_t injected = 0;
        for (uint64_t at = 1;; ++at) {
            const std::string what = std::string(each.in_save ? "save, " : "load, ") + each.function + " " +
                                     std::to_string(at) + " " + std::to_string(each.error);
            arm_system(folder_.path(), each.function, each.in_save ? at : 0, each.error, 3);
            ASSERT_EQ(cache_.save(path_), WINNOW_OK) << what << ": " << cache_.message();
            const uint64_t in_save = system_failures();
            const std::vector<int64_t> saved = cache_.positions();
            cache_.append(1);
            arm_system(folder_.path(), each.function, each.in_save ? 0 : at, each.error, 3);
            ASSERT_EQ(cache_.load(path_), WINNOW_OK) << what << ": " << cache_.message();
            const uint64_t now = in_save + system_failures();
            ASSERT_EQ(cache_.positions(), saved) << what;
            expect_only_the_file(what);
            if (now == 0) break;
            injected += now;
        }
        EXPECT_GT(injected, 0u) << each.function << " " << each.error << (each.in_save ? " in save" : " in load");
    }
}

TEST_F(file_faults, a_write_that_writes_nothing_is_no_reason_to_hang) {
    ::alarm(30);
    arm_system(folder_.path(), "write", 2, no_count, 1000);
    expect_refused(cache_.save(path_), WINNOW_ERROR_IO, "cannot write", "no byte");
    ::alarm(0);
    expect_only_the_file("no byte");
    EXPECT_TRUE(bytes_of(path_) == old_);
}

TEST_F(file_faults, a_load_that_fails_says_why_and_leaves_the_cache) {
    for (const char* function : {"open", "fstat", "read"}) {
        uint64_t failures = 0;
        for (const int error : {EIO, EACCES, ESTALE})
            for (uint64_t at = 1;; ++at) {
                const std::vector<int64_t> before = cache_.positions();
                const std::string what = std::string(function) + " " + std::to_string(at) + ", " + text_of(error);
                arm_system(folder_.path(), function, at, error);
                const int32_t status = cache_.load(path_);
                if (system_failures() == 0) {
                    ASSERT_EQ(status, WINNOW_OK) << what << ": " << cache_.message();
                    cache_.append(3); // again another one than the file's
                    break;
                }
                ++failures;
                expect_refused(status, WINNOW_ERROR_IO, text_of(error), what);
                ASSERT_EQ(cache_.positions(), before) << what;
                ASSERT_FALSE(HasFailure()) << what;
            }
        EXPECT_GE(failures, 3u) << function << " is not reached";
    }
    const std::vector<int64_t> before = cache_.positions();
    arm_system(folder_.path(), "read", 3, no_count, 1000);
    expect_refused(cache_.load(path_), WINNOW_ERROR_INVALID_ARGUMENT, "cut short", "no byte");
    EXPECT_EQ(cache_.positions(), before);
}

// No injection: the system's own limit of a file's size.
TEST_F(file_faults, a_full_disk_is_no_failure_of_the_driver) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1000, 1000};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const bool is_right =
            cache_.save(path_) == WINNOW_ERROR_IO && cache_.message().find(text_of(EFBIG)) != std::string::npos;
        ::_exit(is_right ? 0 : 1);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    expect_only_the_file("full");
    EXPECT_TRUE(bytes_of(path_) == old_);
}

TEST_F(file_faults, what_is_no_file_is_refused_before_it_is_touched) {
    const std::string folder = folder_.file("folder"), pipe = folder_.file("pipe");
    ASSERT_EQ(::mkdir(folder.c_str(), 0755), 0);
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0644), 0);
    ::alarm(30); // nobody writes into the pipe
    for (const std::string& place : {folder, pipe}) {
        arm_system(folder_.path(), "write", 1, EIO);
        EXPECT_EQ(cache_.save(place), WINNOW_ERROR_INVALID_ARGUMENT) << cache_.message();
        EXPECT_NE(cache_.message().find(place), std::string::npos) << cache_.message();
        EXPECT_EQ(system_failures(), 0u) << "it was written to";
        EXPECT_EQ(cache_.load(place), WINNOW_ERROR_INVALID_ARGUMENT) << cache_.message();
    }
    ::alarm(0);
    EXPECT_EQ(folder_.names(), (std::vector<std::string>{"cache", "folder", "pipe"}));
}

TEST_F(file_faults, the_next_save_removes_what_a_killed_one_left) {
    const pid_t child = start_child(killed);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    ASSERT_EQ(folder_.names().size(), 2u) << "the child left nothing, so that this proves nothing";
    EXPECT_TRUE(bytes_of(path_) == old_);
    ASSERT_EQ(cache_.save(path_), WINNOW_OK) << cache_.message();
    expect_only_the_file("after a killed save");
}

TEST_F(file_faults, a_save_that_goes_on_keeps_its_temporary) {
    const pid_t child = start_child(stopped);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, WUNTRACED), child);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    ASSERT_EQ(cache_.save(path_), WINNOW_OK) << cache_.message();
    const std::string ours = bytes_of(path_);
    EXPECT_EQ(folder_.names().size(), 2u);
    ASSERT_EQ(::kill(child, SIGCONT), 0);
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    expect_only_the_file("after both");
    EXPECT_FALSE(bytes_of(path_) == ours) << "the later one has to be there";
    EXPECT_EQ(cache_.load(path_), WINNOW_OK) << cache_.message();
}

// As in a container that is started again, where numbers of processes repeat.
TEST_F(file_faults, a_name_that_is_taken_is_no_obstacle) {
    for (int serial = 0; serial < 100; ++serial)
        std::ofstream(path_ + "." + std::to_string(::getpid()) + "." + std::to_string(serial) + ".tmp") << "left";
    const std::string other = folder_.file("cache.note.tmp"); // of somebody else
    std::ofstream(other) << "kept";
    ASSERT_EQ(cache_.save(path_), WINNOW_OK) << cache_.message();
    EXPECT_EQ(folder_.names(), (std::vector<std::string>{"cache", "cache.note.tmp"}));
    ASSERT_EQ(cache_.load(path_), WINNOW_OK) << cache_.message();
}

} // namespace
} // namespace winnow::faults
