// The cold tier of recall in a file where the system's calls fail: each call of the cache then says so with a message,
// the sequence is as before, and tried again gives what an untouched twin, whose cold tier lies in memory, gives.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <thread>

#include "recall_cache.hpp"
#include "saved_state.hpp"
#include "system_faults.hpp"
#include "temporary_folder.hpp"

namespace winnow::faults {
namespace {

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
        "truncate within a page", [](RecallCache& c) { return c.caches().truncate(c.get(), 0, 93); }, true);
    steps(1, 2);
    edit(
        "remove", [](RecallCache& c) { return c.caches().remove(c.get(), 0, 20, 41); }, true);
    steps(1, 1);
    steps(60, 1);
    steps(1, 9);
    edit("copy", [](RecallCache& c) { return c.caches().copy(c.get(), 0, 1); });
    for (const int64_t others : {1, 3, 20})
        for (int64_t layer = 0; layer < layers; ++layer, seed += 10)
            all.push_back(
                {"step of two sequences, layer " + std::to_string(layer), [=](RecallCache& cache, std::string& output) {
                     return cache.step(layer, 2 * others, seed, output, others);
                 }});
    for (int64_t layer = 0; layer < layers; ++layer)
        edit("write", [layer](RecallCache& c) { return c.exchange(layer, "write"); });
    steps(1, 2);
    edit("remove of all", [](RecallCache& c) { return c.caches().remove(c.get(), 1, 0, -1); });
    for (int64_t layer = 0; layer < layers; ++layer)
        edit("import", [layer](RecallCache& c) { return c.exchange(layer, "import"); });
    // Into layers with a few dense tokens, and no cold rows yet.
    edit("remove of all", [](RecallCache& c) { return c.caches().remove(c.get(), 1, 0, -1); });
    for (int64_t layer = 0; layer < layers; ++layer, seed += 10)
        all.push_back({"step of two sequences",
                       [=](RecallCache& cache, std::string& output) { return cache.step(layer, 4, seed, output, 2); }});
    for (int64_t layer = 0; layer < layers; ++layer)
        edit("import of exact rows", [layer](RecallCache& c) { return c.append_exact(layer, 60); });
    for (int64_t layer = 0; layer < layers; ++layer, seed += 10)
        all.push_back({"step of two sequences",
                       [=](RecallCache& cache, std::string& output) { return cache.step(layer, 2, seed, output, 1); }});
    const std::string path = folder.file("saved");
    edit("save", [path](RecallCache& c) { return save_state(c.caches(), c.get(), path); });
    edit("load", [path](RecallCache& c) { return load_state(c.caches(), c.get(), path); });
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
    ASSERT_EQ(cache.caches().truncate(cache.get(), 0, 207), WINNOW_OK) << cache.message();
    ASSERT_EQ(cache.step(0, 1, 30, output), WINNOW_OK) << cache.message();
    EXPECT_LT(cache.stats().misses - after.misses, 8u) << "what the draft picked is not hot any more";
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
    const std::vector<std::pair<uint64_t, uint64_t>> asked = advised(POSIX_FADV_WILLNEED);
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

} // namespace
} // namespace winnow::faults
