// Every OpenCL call that Winnow makes fails once: each function answers with the right status and a message that names
// the call, nothing leaks, hangs or crashes, and what is tried again gives what it would have given.
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "sweep.hpp"

namespace winnow::faults {
namespace {

bool is_full() { return std::getenv("WINNOW_FULL_SWEEPS") != nullptr; }

std::unique_ptr<Script> make_script(const std::string& name) {
    if (name == "cache") return std::make_unique<CacheScript>(WINNOW_OPENCL_BACKEND);
    auto script = std::make_unique<AttentionScript>(WINNOW_OPENCL_BACKEND);
    script->session().is_timed = name == "attention_timed";
    return script;
}

void expect_right(const Transcript& disturbed, const Transcript& undisturbed, const std::string& what) {
    for (const std::string& fault : disturbed.faults) ADD_FAILURE() << what << ": " << fault;
    ASSERT_EQ(disturbed.results.size(), undisturbed.results.size()) << what;
    for (size_t at = 0; at < disturbed.results.size(); ++at)
        ASSERT_EQ(disturbed.results[at], undisturbed.results[at]) << what << ", action " << at;
}

struct FailingCall {
    uint64_t at;
    uint32_t variation;
};

// The calls of a sweep: all of them, or `sampled` the first of each function in each action, so that no action's use of
// a function is left out. A stride over their numbers would meet other calls on another processor.
std::vector<uint64_t> calls_of(const Transcript& undisturbed, bool sampled) {
    std::set<ClCall> kinds;
    std::vector<uint64_t> calls;
    for (uint64_t at = 1; at <= undisturbed.calls; ++at)
        if (kinds.insert(undisturbed.made[at - 1]).second || !sampled) calls.push_back(at);
    std::cout << calls.size() << " of " << undisturbed.calls << " calls, of " << kinds.size() << " kinds\n";
    return calls;
}

// How these calls fail: the first of a function that waits in each action with each of its errors, the others with one
// each. A function's calls take turns, so that all of its errors come, whatever actions there are.
std::vector<FailingCall> failures_of(const Transcript& undisturbed, const std::vector<uint64_t>& calls) {
    std::map<std::string, uint32_t> turns;
    std::set<ClCall> kinds;
    std::vector<FailingCall> failures;
    for (const uint64_t at : calls) {
        const ClCall& call = undisturbed.made[at - 1];
        const bool has_all = kinds.insert(call).second && waits(call.function);
        const uint32_t turn = turns[call.function]++;
        for (uint32_t i = 0; i < (has_all ? opencl_layer()->errors(call.function.c_str()) : 1); ++i)
            failures.push_back({at, turn + i});
    }
    std::cout << failures.size() << " failures\n";
    return failures;
}

// A script, and whether the device seems to share its memory with the host.
struct Case {
    std::string script;
    bool discrete;
    friend void PrintTo(const Case& each, std::ostream* out) { *out << each.script << " " << each.discrete; }
};

class opencl_faults : public testing::TestWithParam<Case> {
protected:
    void SetUp() override {
        ASSERT_NE(opencl_layer(), nullptr) << "OPENCL_LAYERS does not name the layer of these tests";
        watch(60);
        opencl_layer()->hide_unified_memory(GetParam().discrete);
        undisturbed_ = run_undisturbed(*make_script(GetParam().script));
        ASSERT_TRUE(undisturbed_.faults.empty()) << undisturbed_.faults.front();
        ASSERT_GT(undisturbed_.calls, 100u) << "the layer sees nothing";
    }
    void TearDown() override {
        if (opencl_layer() != nullptr) opencl_layer()->hide_unified_memory(0);
    }

    std::unique_ptr<Script> script() const { return make_script(GetParam().script); }
    Transcript undisturbed_;
};

TEST_P(opencl_faults, the_same_calls_give_the_same) {
    expect_right(run_undisturbed(*script()), undisturbed_, "a second run");
}

// In a context that goes on all the time.
TEST_P(opencl_faults, every_call_fails_once) {
    const Transcript transcript = run_failing_everything(*script(), OPENCL_FAULT_ONCE, is_full());
    EXPECT_GT(transcript.calls, 100u) << "hardly a call failed";
    std::cout << transcript.calls << " failures\n";
    expect_right(transcript, undisturbed_, "every call");
}

// From a new context on, where programs are loaded and kernels made.
TEST_P(opencl_faults, a_call_fails_after_a_new_start) {
    const auto calls = calls_of(undisturbed_, !is_full() && GetParam().script == "cache");
    for (const FailingCall& call : failures_of(undisturbed_, calls)) {
        const opencl_fault_plan plan{
            .at = call.at, .function = nullptr, .kind = OPENCL_FAULT_ONCE, .variation = call.variation, .code = 0};
        ASSERT_NO_FATAL_FAILURE(
            expect_right(run_with(*script(), plan), undisturbed_, "call " + std::to_string(call.at)));
    }
}

class opencl_event_faults : public opencl_faults {};

TEST_P(opencl_event_faults, are_told_of) {
    const Transcript transcript = run_failing_everything(*script(), OPENCL_FAULT_EVENT, false);
    EXPECT_GT(transcript.calls, 2u);
    expect_right(transcript, undisturbed_, "events");
}

TEST_P(opencl_faults, the_device_is_lost) {
    for (const uint64_t at : calls_of(undisturbed_, !is_full())) {
        const Transcript transcript = run_lost(*script(), at);
        for (const std::string& fault : transcript.faults) ADD_FAILURE() << "call " << at << ": " << fault;
        if (HasFailure()) return;
    }
    expect_right(run_undisturbed(*script()), undisturbed_, "with the device back");
}

std::string name_of(const testing::TestParamInfo<Case>& each) {
    return each.param.script + (each.param.discrete ? "_discrete" : "");
}

INSTANTIATE_TEST_SUITE_P(, opencl_faults,
                         testing::Values(Case{"attention", false}, Case{"attention", true},
                                         Case{"attention_timed", false}, Case{"cache", false}, Case{"cache", true}),
                         name_of);
// Without the events of launches, by which they are timed: a later call tells of those.
INSTANTIATE_TEST_SUITE_P(, opencl_event_faults,
                         testing::Values(Case{"attention", false}, Case{"attention", true}, Case{"cache", false},
                                         Case{"cache", true}),
                         name_of);

} // namespace
} // namespace winnow::faults
