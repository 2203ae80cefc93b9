// The cold tier of recall in a file where the system's calls fail: each call of the cache then says so with a message,
// the sequence is as before, and tried again gives what an untouched twin, whose cold tier lies in memory, gives.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <system_error>
#include <thread>

#include "session.hpp"
#include "system_faults.hpp"
#include "temporary_folder.hpp"

namespace winnow::faults {
namespace {

constexpr int64_t layers = 2, kv_heads = 2, group = 2, context_tokens = 256;

std::string text_of(int error) { return std::generic_category().message(error); }

// On the reference backend, which has no threads: a child process can have one, too. Without a bonus for hot pages,
// which are none any more after a failure, the same pages are picked again.
class RecallCache {
public:
    explicit RecallCache(const std::string& tier, const std::string& keys = "", const std::string& bonus = "0")
        : RecallCache(32, "winnow:budget=24000B,k=q8_0,v=q4_0,bonus=" + bonus + ",recall=" + tier + keys) {}
    RecallCache(int64_t head_size, const std::string& config, const char* backend = WINNOW_REFERENCE_BACKEND)
        : session_(backend), size_(head_size) {
        EXPECT_EQ(session_.create(true), WINNOW_OK) << session_.message();
        winnow_cache_desc desc{};
        desc.struct_size = sizeof desc;
        desc.config = config.c_str();
        desc.layers = layers;
        desc.q_num_heads = kv_heads * group;
        desc.kv_num_heads = kv_heads;
        desc.head_size = size_;
        desc.context = context_tokens;
        desc.max_sequences = 2;
        EXPECT_EQ(api().cache_create(session_.context(), &desc, &cache_), WINNOW_OK) << message();
    }

    // What is left of the output of a step where it succeeds.
    int32_t step(int64_t layer, int64_t tokens, uint64_t seed, std::string& output) {
        HostTensor k(WINNOW_TYPE_F32, kv_heads, tokens, size_), v(WINNOW_TYPE_F32, kv_heads, tokens, size_),
            q(WINNOW_TYPE_F32, kv_heads * group, tokens, size_), out(WINNOW_TYPE_F32, kv_heads * group, tokens, size_);
        k.fill(seed);
        v.fill(seed + 1);
        q.fill(seed + 2);
        winnow_cache_step_desc desc{};
        desc.struct_size = sizeof desc;
        desc.layer = layer;
        desc.k = k.get();
        desc.v = v.get();
        desc.q = q.get();
        desc.out = out.get();
        const int32_t status = api().cache_step(cache_, &desc, nullptr); // which, if it fails, uses nothing any more
        if (status == WINNOW_OK && api().finish(session_.context()) != WINNOW_OK) ADD_FAILURE() << message();
        output = out.digest();
        values_ = out.floats();
        return status;
    }

    // All rows and positions, and how many pages were picked.
    std::string portrait() {
        std::string text;
        HostTensor tokens(WINNOW_TYPE_I32, 1, 1, context_tokens);
        tokens.count_from(0);
        for (int64_t sequence = 0; sequence < 2; ++sequence)
            for (int64_t layer = 0; layer < layers; ++layer) {
                HostTensor k(WINNOW_TYPE_F32, kv_heads, context_tokens, size_),
                    v(WINNOW_TYPE_F32, kv_heads, context_tokens, size_);
                winnow_cache_rows_desc desc{};
                desc.struct_size = sizeof desc;
                desc.layer = layer;
                desc.sequence = sequence;
                desc.tokens = tokens.get();
                desc.k = k.get();
                desc.v = v.get();
                EXPECT_EQ(api().cache_read(cache_, &desc), WINNOW_OK) << message();
                text += k.digest() + " " + v.digest() + " ";
            }
        text += std::to_string(stats().picks);
        return text;
    }

    int32_t exchange(int64_t layer, const std::string& what) {
        HostTensor tokens(WINNOW_TYPE_I32, 1, 1, 60), k(WINNOW_TYPE_F32, kv_heads, 60, size_),
            v(WINNOW_TYPE_F32, kv_heads, 60, size_);
        tokens.count_from(0);
        k.fill(77);
        v.fill(78);
        winnow_cache_rows_desc desc{};
        desc.struct_size = sizeof desc;
        desc.layer = layer;
        desc.k = k.get();
        desc.v = v.get();
        if (what == "write") {
            desc.tokens = tokens.get();
            return api().cache_write(cache_, &desc);
        }
        desc.sequence = 1;
        return api().cache_restore(cache_, &desc);
    }

    winnow_cache_stats stats() {
        winnow_cache_stats stats{};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(api().cache_stats(cache_, &stats), WINNOW_OK) << message();
        return stats;
    }

    const std::vector<float>& values() const { return values_; } // the output of the last step
    const winnow_api& api() const { return session_.api(); }
    winnow_cache* get() { return cache_; }
    std::string message() const { return session_.message(); }

private:
    Session session_;
    int64_t size_;
    std::vector<float> values_;
    winnow_cache* cache_ = nullptr;
};

struct Call {
    std::string name;
    std::function<int32_t(RecallCache&, std::string& output)> run;
    bool may_cope = false; // compaction waits until the next query
};

std::vector<Call> calls(const TemporaryFolder& folder) {
    std::vector<Call> all;
    uint64_t seed = 100;
    const auto steps = [&](int64_t tokens, int count) {
        for (int i = 0; i < count; ++i)
            for (int64_t layer = 0; layer < layers; ++layer, seed += 10)
                all.push_back(
                    {"step of " + std::to_string(tokens) + ", layer " + std::to_string(layer),
                     [=](RecallCache& cache, std::string& output) { return cache.step(layer, tokens, seed, output); }});
    };
    const auto edit = [&](const char* name, std::function<int32_t(RecallCache&)> run, bool may_cope = false) {
        all.push_back({name, [run](RecallCache& cache, std::string&) { return run(cache); }, may_cope});
    };
    steps(100, 1);
    steps(1, 10);
    steps(5, 2);
    edit(
        "truncate within a page", [](RecallCache& c) { return c.api().cache_truncate(c.get(), 0, 93); }, true);
    steps(1, 2);
    edit(
        "remove", [](RecallCache& c) { return c.api().cache_remove(c.get(), 0, 20, 41); }, true);
    steps(1, 1);
    steps(60, 1);
    steps(1, 9);
    edit("copy", [](RecallCache& c) { return c.api().cache_copy(c.get(), 0, 1); });
    for (int64_t layer = 0; layer < layers; ++layer)
        edit("write", [layer](RecallCache& c) { return c.exchange(layer, "write"); });
    steps(1, 2);
    edit("remove of all", [](RecallCache& c) { return c.api().cache_remove(c.get(), 1, 0, -1); });
    for (int64_t layer = 0; layer < layers; ++layer)
        edit("restore", [layer](RecallCache& c) { return c.exchange(layer, "restore"); });
    const std::string path = folder.file("saved");
    edit("save", [path](RecallCache& c) { return c.api().cache_save(c.get(), path.c_str()); });
    edit("load", [path](RecallCache& c) { return c.api().cache_load(c.get(), path.c_str()); });
    steps(1, 1);
    return all;
}

class cold_file : public testing::Test {
protected:
    void SetUp() override { hide_page_cache(true); }
    void TearDown() override {
        arm_system("", "", 0, 0);
        hide_page_cache(false);
    }

    // A step of the first layer of which the first read fails, then the second, and so on, until it succeeds. Returns
    // how often one failed.
    uint64_t fail_each_read(RecallCache& cache, int64_t tokens, uint64_t seed, std::string& output) {
        const std::string before = cache.portrait();
        for (uint64_t at = 1;; ++at) {
            arm_system(folder_.path(), "pread", at, EIO);
            const int32_t status = cache.step(0, tokens, seed, output);
            const bool failed = system_failures() > 0;
            threads_ = std::max(threads_, system_threads());
            arm_system("", "", 0, 0);
            const std::string what = std::to_string(tokens) + " tokens, read " + std::to_string(at);
            if (status == WINNOW_OK) {
                EXPECT_FALSE(failed) << what << ": it was swallowed";
                return at - 1 + failed;
            }
            EXPECT_TRUE(failed) << cache.message();
            EXPECT_EQ(status, WINNOW_ERROR_IO) << cache.message();
            EXPECT_EQ(cache.portrait(), before) << what << ": something changed";
            if (HasFailure()) return at;
        }
    }

    TemporaryFolder folder_, saved_, saved_of_twin_;
    size_t threads_ = 0; // that read at once
};

// The first call of a function fails, then the second, and so on, until the call succeeds; so with every call of a
// script. Keys: of the configuration.
class failing_calls : public cold_file, public testing::WithParamInterface<std::tuple<const char*, const char*>> {
protected:
    // Returns how often one failed.
    uint64_t fail_each(RecallCache& cache, const Call& call, std::string& output) {
        const char* const function = std::get<0>(GetParam());
        const std::string before = cache.portrait();
        const uint64_t misses = cache.stats().misses;
        for (uint64_t at = 1;; ++at) {
            const int error = at % 2 == 0 ? EIO : ENOSPC;
            const std::string what =
                call.name + ", " + function + " " + std::to_string(at) + " fails: " + text_of(error);
            arm_system(folder_.path(), function, at, error);
            const int32_t status = call.run(cache, output);
            const bool failed = system_failures() > 0;
            arm_system("", "", 0, 0);
            if (status == WINNOW_OK) {
                EXPECT_TRUE(!failed || call.may_cope) << what << ": it was swallowed";
                return at - 1 + failed;
            }
            EXPECT_TRUE(failed) << what << ": " << cache.message();
            EXPECT_EQ(status, WINNOW_ERROR_IO) << what << ": " << cache.message();
            EXPECT_NE(cache.message().find(text_of(error)), std::string::npos) << what << ": " << cache.message();
            EXPECT_NE(cache.message().find(folder_.path()), std::string::npos) << what << ": " << cache.message();
            EXPECT_EQ(cache.portrait(), before) << what << ": something changed";
            EXPECT_EQ(cache.stats().misses, misses) << what << ": misses of what failed count";
            if (HasFailure()) return at;
        }
    }
};

TEST_P(failing_calls, leave_the_cache_as_it_was) {
    const std::string keys = std::get<1>(GetParam());
    RecallCache cache(folder_.path(), keys), twin("host", keys);
    uint64_t failures = 0;
    const std::vector<Call> all = calls(saved_), of_twin = calls(saved_of_twin_);
    for (size_t i = 0; i < all.size(); ++i) {
        std::string output, expected;
        failures += fail_each(cache, all[i], output);
        ASSERT_FALSE(HasFailure());
        ASSERT_EQ(of_twin[i].run(twin, expected), WINNOW_OK) << twin.message();
        ASSERT_EQ(output, expected) << all[i].name << ", the call " << i;
        ASSERT_EQ(cache.portrait(), twin.portrait()) << all[i].name << ", the call " << i;
    }
    EXPECT_GE(failures, 10u) << "it is hardly reached";
}

INSTANTIATE_TEST_SUITE_P(, failing_calls,
                         testing::Combine(testing::Values("posix_fallocate", "pwrite", "pread"),
                                          testing::Values("", ",cold=120")));

// Rows of 4 KiB, so that a stretch is of 128 of them: the second prompt reads two, the third three.
TEST_F(cold_file, a_read_of_any_stretch_fails) {
    const std::string config = "winnow:budget=1M,k=f16,v=f16,recall=";
    RecallCache cache(512, config + folder_.path()), twin(512, config + "host");
    std::string output, expected;
    uint64_t seed = 1, failures = 0;
    for (const int64_t tokens : {150, 10, 40, 9}) {
        failures += fail_each_read(cache, tokens, seed, output);
        ASSERT_FALSE(HasFailure());
        ASSERT_EQ(twin.step(0, tokens, seed, expected), WINNOW_OK) << twin.message();
        ASSERT_EQ(output, expected) << tokens << " tokens";
        seed += 10;
    }
    EXPECT_GE(failures, 6u) << "a stretch is larger than was thought";
}

// What the first query picks comes in two threads, each of which reads twice.
TEST_F(cold_file, a_read_in_any_thread_fails) {
    const std::string config = "winnow:budget=900000B,k=f16,v=f16,bonus=0,recall=";
    RecallCache cache(256, config + folder_.path(), WINNOW_OPENCL_BACKEND),
        twin(256, config + "host", WINNOW_OPENCL_BACKEND);
    std::string output, expected;
    uint64_t seed = 1, failures = 0;
    for (const int64_t tokens : {240, 1, 1}) {
        failures += fail_each_read(cache, tokens, seed, output);
        ASSERT_FALSE(HasFailure());
        ASSERT_EQ(twin.step(0, tokens, seed, expected), WINNOW_OK) << twin.message();
        for (size_t i = 0; i < twin.values().size(); ++i) // pages lie in other frames after a failure
            ASSERT_NEAR(cache.values()[i], twin.values()[i], 1e-6) << tokens << " tokens";
        seed += 10;
    }
    std::printf("%llu reads failed, up to %zu threads read at once, %llu pages of the first query missed\n",
                static_cast<unsigned long long>(failures), threads_,
                static_cast<unsigned long long>(cache.stats().misses));
    EXPECT_GE(failures, 6u);
    EXPECT_GE(threads_, std::min(2u, std::thread::hardware_concurrency())) << "one thread read all";
}

// Of what is asked for the page cache has the first byte, or all, or nothing.
TEST_F(cold_file, what_the_page_cache_has_in_part_is_read) {
    RecallCache cache(folder_.path()), twin("host");
    hide_page_cache(false);
    std::string output, expected;
    uint64_t seed = 1, shortened = 0;
    for (const int64_t tokens : {150, 1, 1, 1, 5, 1}) {
        arm_system(folder_.path(), "preadv2", 1 + seed % 3, short_count, 1000);
        ASSERT_EQ(cache.step(0, tokens, seed, output), WINNOW_OK) << cache.message();
        shortened += system_failures();
        arm_system("", "", 0, 0);
        ASSERT_EQ(twin.step(0, tokens, seed, expected), WINNOW_OK) << twin.message();
        ASSERT_EQ(output, expected) << "seed " << seed;
        seed += 10;
    }
    EXPECT_GE(shortened, 4u);
}

// Where hot pages stay hot a draft needs a few pages more, as every query picks the newest.
TEST_F(cold_file, a_draft_reads_what_its_queries_miss) {
    RecallCache cache(folder_.path(), "", "80");
    std::string output;
    ASSERT_EQ(cache.step(0, 200, 1, output), WINNOW_OK) << cache.message();
    for (uint64_t seed = 10; seed < 15; ++seed) ASSERT_EQ(cache.step(0, 1, seed, output), WINNOW_OK) << cache.message();
    const winnow_cache_stats before = cache.stats();
    ASSERT_EQ(cache.step(0, 5, 20, output), WINNOW_OK) << cache.message();
    const winnow_cache_stats after = cache.stats();
    EXPECT_LT(after.misses - before.misses, 40u);
    EXPECT_LT(after.bytes_read - before.bytes_read, after.cold_bytes / 2);
    EXPECT_EQ(after.peak_bytes, before.peak_bytes);
}

// Pages of 16 KiB, and half of them lie in the file alone.
TEST_F(cold_file, what_lies_around_a_miss_is_read_with_it) {
    constexpr uint64_t window = 32 << 10;
    RecallCache cache(512, "winnow:budget=1200000B,k=f16,v=f16,bonus=0,recall=" + folder_.path());
    std::string output;
    ASSERT_EQ(cache.step(0, 150, 1, output), WINNOW_OK) << cache.message();
    const winnow_cache_stats before = cache.stats();
    arm_system(folder_.path(), "", 0, 0);
    ASSERT_EQ(cache.step(0, 1, 20, output), WINNOW_OK) << cache.message();
    const winnow_cache_stats after = cache.stats();
    ASSERT_GT(after.bytes_read, before.bytes_read);
    const std::vector<std::pair<uint64_t, uint64_t>> asked = read_ahead();
    uint64_t bytes = 0, last = 0;
    for (const auto& [begin, end] : asked) {
        EXPECT_EQ(begin % window, 0u);
        EXPECT_TRUE(end % window == 0 || end == after.disk_bytes) << end << " of " << after.disk_bytes;
        EXPECT_GE(begin, last) << "something is asked for twice";
        bytes += end - begin;
        last = end;
    }
    EXPECT_GE(bytes, after.bytes_read - before.bytes_read);
    EXPECT_LE(bytes, after.disk_bytes);
}

// The system tells it when it is asked, once, and has other bytes in their place from then on.
TEST_F(cold_file, rows_that_did_not_reach_the_disk_are_not_read) {
    RecallCache cache(folder_.path());
    std::string output;
    ASSERT_EQ(cache.step(0, 200, 1, output), WINNOW_OK) << cache.message();
    arm_system(folder_.path(), "sync_file_range", 1, EIO);
    EXPECT_EQ(cache.step(0, 1, 20, output), WINNOW_ERROR_IO);
    EXPECT_GT(system_failures(), 0u);
    EXPECT_NE(cache.message().find("did not reach the disk"), std::string::npos) << cache.message();
    EXPECT_NE(cache.message().find(folder_.path()), std::string::npos) << cache.message();
    arm_system("", "", 0, 0);
    EXPECT_EQ(cache.step(0, 1, 20, output), WINNOW_ERROR_IO);
}

TEST_F(cold_file, interrupted_and_short_calls_go_on) {
    RecallCache twin("host");
    for (const auto& [function, error] : {std::pair("pread", EINTR),
                                          {"pread", short_count},
                                          {"pwrite", EINTR},
                                          {"pwrite", short_count},
                                          {"posix_fallocate", EINTR}}) {
        RecallCache cache(folder_.path()), other("host");
        const std::vector<Call> all = calls(saved_), of_twin = calls(saved_of_twin_);
        for (size_t i = 0; i < 30; ++i) {
            std::string output, expected;
            arm_system(folder_.path(), function, 1, error, 3);
            ASSERT_EQ(all[i].run(cache, output), WINNOW_OK) << function << " " << error << ": " << cache.message();
            arm_system("", "", 0, 0);
            ASSERT_EQ(of_twin[i].run(other, expected), WINNOW_OK) << other.message();
            ASSERT_EQ(output, expected) << function << " " << error << ", " << all[i].name;
        }
    }
}

TEST_F(cold_file, what_reads_or_writes_nothing_is_no_reason_to_hang) {
    RecallCache cache(folder_.path());
    std::string output;
    ::alarm(60);
    arm_system(folder_.path(), "pwrite", 1, no_count, 1000);
    EXPECT_EQ(cache.step(0, 100, 1, output), WINNOW_ERROR_IO) << cache.message();
    arm_system("", "", 0, 0);
    EXPECT_EQ(cache.step(0, 100, 1, output), WINNOW_OK) << cache.message();
    arm_system(folder_.path(), "pread", 1, no_count, 1000);
    EXPECT_EQ(cache.step(0, 60, 2, output), WINNOW_ERROR_IO) << cache.message();
    ::alarm(0);
}

TEST_F(cold_file, a_killed_process_leaves_nothing) {
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

// No injection: a file system of 32 KiB.
TEST_F(cold_file, a_full_file_system) {
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
        EXPECT_EQ(cache.api().cache_remove(cache.get(), 0, 0, -1), WINNOW_OK) << cache.message();
        EXPECT_EQ(free_blocks(), before) << "space of removed tokens is not given back";
        EXPECT_EQ(cache.step(0, 8, 1, output), WINNOW_OK) << cache.message();
    }
    EXPECT_EQ(free_blocks(), before);
    ::umount(folder_.path().c_str());
}

} // namespace
} // namespace winnow::faults
