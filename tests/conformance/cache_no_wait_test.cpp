// Steps that must not wait. Where memory lacks they are refused, and leave all as it was; where it was taken beforehand
// they come out as steps that may wait. Whether a backend waits in secret is not seen here: random schedules of calls
// (cache_schedule.cpp) have such steps, too, and tests of this project's backends count waits and block queues.
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "cache_cases.hpp"
#include "cache_host.hpp"
#include "cache_registration.hpp"
#include "registered_cases.hpp"

namespace winnow::conformance {
namespace {

// On any device a tensor in a buffer is there without a wait.
const StepOptions in_buffers{.memory = Memory::allocated};

void expect_equal(const TestTensor& got, const TestTensor& wanted) {
    int64_t differences = 0;
    got.each([&](const Index& at) { differences += got.get(at) != wanted.get(at); });
    EXPECT_EQ(differences, 0) << "elements of out";
}

class Pair {
public:
    explicit Pair(const CacheSetup& setup)
        : setup_(setup), engine_(options().seed), cache_(subject(), setup), twin_(subject(), setup) {}

    // The next tokens of sequence 0, layer by layer.
    void step(int64_t tokens, bool is_refused) {
        tokens = std::min(tokens, setup_.context - length_);
        if (tokens == 0) return;
        const bool attends = length_ == 0 || engine_() % 5 > 0;
        for (int64_t layer = 0; layer < setup_.layers; ++layer) {
            Step one = draw_step(setup_, engine_, layer, 0, tokens, attends ? tokens : 0, in_buffers);
            Step other = part_of(setup_, one, 0, tokens);
            run(one, is_refused);
            ASSERT_EQ(twin_.run(other), WINNOW_OK) << twin_.message();
            if (attends) expect_equal(one.out, other.out);
        }
        length_ += tokens;
        EXPECT_EQ(cache_.portrait(), twin_.portrait()) << "after " << length_ << " tokens";
    }

    void reserve() {
        for (CacheHost* each : {&cache_, &twin_})
            ASSERT_EQ(each->caches().reserve(each->get(), 0, setup_.context), WINNOW_OK) << each->message();
    }

private:
    void run(Step& step, bool is_refused) {
        step.options.no_wait = true;
        if (is_refused) {
            const std::string before = cache_.portrait();
            ASSERT_EQ(cache_.run(step), WINNOW_ERROR_WOULD_WAIT) << "it needs memory";
            EXPECT_NE(cache_.message().find("cache_step: "), std::string::npos) << cache_.message();
            EXPECT_EQ(cache_.portrait(), before);
            for (TestTensor* each : {&step.k, &step.v, &step.q, &step.out}) {
                if (!*each) continue;
                each->fetch();
                EXPECT_EQ(each->change(), "");
            }
            step.options.no_wait = false;
        }
        ASSERT_EQ(cache_.run(step), WINNOW_OK) << cache_.message();
    }

    CacheSetup setup_;
    std::mt19937_64 engine_;
    CacheHost cache_, twin_;
    int64_t length_ = 0;
};

void run_pair(const CacheSetup& setup) {
    Pair pair(setup);
    pair.step(3, true);
    pair.reserve();
    for (const int64_t tokens : {1, 40, 1, 1, 70, 9, 1, 1, 33, 1, 2}) {
        pair.step(tokens, false);
        if (testing::Test::HasFatalFailure()) return;
    }
}

} // namespace

void register_cache_no_wait() {
    const auto add = [](const std::string& name, const CacheSetup& setup) {
        register_cache_test("no_wait", name, __FILE__, __LINE__, [=] { run_pair(setup); });
    };
    // Of the policies' table every fourth.
    int at = 0;
    for (const NamedSetup& each : policy_setups())
        if (at++; options().pairs == Pairs::all || at % 4 == 2)
            add(each.name, with_shape(each.setup, at % cache_shapes));
    add("recall", recall_setup(0, "1G"));
}

} // namespace winnow::conformance
