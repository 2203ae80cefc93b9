// The driver: tries, judges the failure, recovers, tries again.
#include "sweep.hpp"

#include <dlfcn.h>
#include <signal.h>
#include <unistd.h>

#include <CL/cl.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <set>

namespace winnow::faults {
namespace {

std::array<char, 400> doing{}; // for the signal handlers
unsigned patience = 60;        // seconds

void say_and_die(int signal) {
    constexpr char text[] = "\na crash or a hang, while: ";
    // Nothing can be done about a failure to say it.
    [[maybe_unused]] ssize_t written = ::write(2, text, sizeof text - 1);
    written = ::write(2, doing.data(), std::char_traits<char>::length(doing.data()));
    written = ::write(2, "\n", 1);
    ::signal(signal, SIG_DFL);
    ::raise(signal);
}

opencl_fault_report report() {
    opencl_fault_report now{};
    opencl_layer()->report(&now);
    return now;
}

// Calls of the test's own neither count nor fail.
struct Paused {
    Paused() { opencl_layer()->pause(1); }
    ~Paused() { opencl_layer()->pause(0); }
};

bool is_of_memory(int32_t code) {
    return code == CL_OUT_OF_HOST_MEMORY || code == CL_OUT_OF_RESOURCES || code == CL_MEM_OBJECT_ALLOCATION_FAILURE;
}

class Run {
public:
    explicit Run(Script& script) : script_(script), living_(opencl_layer()->live()) {}

    enum class Outcome { passed, unchanged, broken };

    // One try of an action. `failures`: of OpenCL before it.
    Outcome attempt(const Action& action, bool has_to_pass) {
        std::string before;
        const uint64_t failures = report().failures;
        if (action.observe && script_.session().context() != nullptr && !has_to_pass) {
            const Paused paused;
            before = action.observe();
        }
        script_.session().logged.clear();
        std::snprintf(doing.data(), doing.size(), "%s, plan %s", action.name.c_str(), plan_text().c_str());
        ::alarm(patience);
        const int32_t status = action.run();
        ::alarm(0);
        if (status == not_run && plan_.kind == OPENCL_FAULT_LOST) return Outcome::passed;
        const opencl_fault_report now = report();
        failed_ = now.failures > failures;
        if (!failed_) {
            if (status == WINNOW_OK) return Outcome::passed;
            fault(action, "returned " + std::to_string(status) + " without a failure of OpenCL: " + message());
            return has_to_pass ? Outcome::passed : Outcome::broken;
        }
        if (status == WINNOW_OK) {
            judge_silence(action, now);
            return Outcome::passed;
        }
        judge(action, status, now);
        if (status == WINNOW_ERROR_DEVICE && action.effect == Effect::changes) return Outcome::broken;
        if (action.effect == Effect::releases) return Outcome::passed;
        if (action.observe && !has_to_pass) {
            const Paused paused;
            if (action.observe() != before) fault(action, "changed something and returned " + name(status));
        }
        return Outcome::unchanged;
    }

    std::string result(const Action& action) {
        const Paused paused;
        return action.result ? action.result() : "done";
    }
    void note(const Action& action) { transcript.results.push_back(action.name + ": " + result(action)); }

    void prepare(const Action& action) {
        const Paused paused;
        if (action.prepare) action.prepare();
    }
    void recover(const Action& action) {
        const Paused paused;
        if (action.recover) action.recover();
    }

    void unsettle() {
        const Paused paused;
        script_.unsettle();
    }

    void fault(const Action& action, const std::string& what) {
        if (transcript.faults.size() < 20)
            transcript.faults.push_back(action.name + " " + what + " [" + plan_text() + "]");
    }

    void expect_nothing_alive() {
        if (opencl_layer()->live() == living_) return;
        transcript.faults.push_back(std::to_string(opencl_layer()->live() - living_) +
                                    " OpenCL objects are still alive [" + plan_text() + "]");
    }

    bool failed() const { return failed_; } // an OpenCL call of the last attempt
    void arm(const opencl_fault_plan& plan) {
        plan_ = plan;
        opencl_layer()->arm(&plan);
    }

    Script& script() { return script_; }
    Transcript transcript;

private:
    std::string plan_text() const {
        const opencl_fault_report now = report();
        return "call " + std::to_string(plan_.at) + ", kind " + std::to_string(plan_.kind) + ", variation " +
               std::to_string(plan_.variation) + ", failed: " + (now.failed != nullptr ? now.failed : "nothing") +
               " (" + std::to_string(now.code) + ")";
    }
    std::string name(int32_t status) const { return script_.session().api().status_name(status); }
    std::string message() const { return script_.session().message(); }

    // What is coped with has to be said to the log.
    void judge_silence(const Action& action, const opencl_fault_report& now) {
        const std::string_view failed = now.failed;
        if (failed.starts_with("clRelease") || action.effect == Effect::releases) return;
        const std::string_view said = plan_.kind == OPENCL_FAULT_LOST ? "failed with CL_DEVICE_NOT_AVAILABLE" : failed;
        for (const std::string& line : script_.session().logged)
            if (line.find(said) != std::string::npos) return;
        fault(action, "returned WINNOW_OK, and its log does not name the call");
    }

    void judge(const Action& action, int32_t status, const opencl_fault_report& now) {
        const std::string text = message();
        std::string_view named = now.failed;
        if (plan_.kind == OPENCL_FAULT_EVENT) named = "the operation behind the event";
        if (plan_.kind == OPENCL_FAULT_LOST) named = "failed with CL_DEVICE_NOT_AVAILABLE"; // by now another one
        const bool is_named = text.find(named) != std::string::npos;
        if (action.effect != Effect::releases && !is_named)
            fault(action, "returned " + name(status) + " with a message that does not name the call: \"" + text + "\"");
        const bool may_be_memory = is_of_memory(now.code) && plan_.kind == OPENCL_FAULT_ONCE;
        if (status == WINNOW_ERROR_DEVICE || (status == WINNOW_ERROR_OUT_OF_MEMORY && may_be_memory)) return;
        fault(action, "returned " + name(status) + ": " + text);
    }

    Script& script_;
    int64_t living_;
    opencl_fault_plan plan_{};
    bool failed_ = false;
};

constexpr opencl_fault_plan nothing{};

} // namespace

const opencl_faults* opencl_layer() {
    static const opencl_faults* const layer = [] {
        const char* const path = std::getenv("OPENCL_LAYERS");
        void* const object = path != nullptr ? ::dlopen(path, RTLD_NOW) : nullptr;
        return static_cast<const opencl_faults*>(object != nullptr ? ::dlsym(object, OPENCL_FAULTS_SYMBOL) : nullptr);
    }();
    return layer;
}

bool waits(std::string_view function) {
    constexpr std::array all = {
        "clFinish",          "clWaitForEvents", "clGetEventInfo", "clEnqueueReadBuffer", "clEnqueueWriteBuffer",
        "clEnqueueMapBuffer"};
    return std::find(all.begin(), all.end(), function) != all.end();
}

void watch(unsigned seconds) {
    patience = seconds;
    for (const int signal : {SIGALRM, SIGSEGV, SIGBUS, SIGABRT, SIGFPE}) ::signal(signal, say_and_die);
}

Transcript run_undisturbed(Script& script) { return run_with(script, nothing); }

Transcript run_with(Script& script, const opencl_fault_plan& plan) {
    Run run(script);
    run.arm(plan);
    bool is_over = plan.at == 0;
    for (const Action& action : script.actions()) {
        if (!is_over) run.prepare(action);
        Run::Outcome outcome = run.attempt(action, is_over);
        if (run.failed()) is_over = true;
        if (outcome == Run::Outcome::broken) run.recover(action);
        if (outcome != Run::Outcome::passed) run.attempt(action, true);
        run.note(action);
        while (run.transcript.made.size() < report().calls)
            run.transcript.made.push_back({action.name, opencl_layer()->function(run.transcript.made.size() + 1)});
    }
    run.transcript.calls = report().calls;
    run.arm(nothing);
    run.expect_nothing_alive();
    return run.transcript;
}

Transcript run_failing_everything(Script& script, uint32_t kind, bool all) {
    Run run(script);
    run.arm(nothing);
    uint64_t failures = 0;
    for (const Action& action : script.actions()) {
        if (action.effect == Effect::releases) {
            run.attempt(action, true);
            run.note(action);
            continue;
        }
        run.prepare(action);
        std::set<std::string> coped; // what it gave
        uint32_t tried = 0;          // errors of the call
        for (uint64_t at = 1;;) {
            run.unsettle();
            const auto error = static_cast<uint32_t>(at) + tried;
            run.arm({.at = at, .function = nullptr, .kind = kind, .variation = error, .code = 0});
            const Run::Outcome outcome = run.attempt(action, false);
            if (!run.failed() && outcome == Run::Outcome::passed) break;
            ++failures;
            if (!run.failed()) break; // said already: it failed by itself
            // What coped with a failure is done again, where needed from where it began.
            if (outcome == Run::Outcome::passed) coped.insert(run.result(action));
            if (outcome != Run::Outcome::unchanged) run.recover(action);
            const char* const failed = report().failed;
            if (++tried < opencl_layer()->errors(failed) && (all || waits(failed))) continue;
            ++at;
            tried = 0;
        }
        run.arm(nothing);
        run.note(action);
        coped.insert(run.result(action));
        if (coped.size() > 1) run.fault(action, "coped with a failure and gave something else");
    }
    run.expect_nothing_alive();
    run.transcript.calls = failures;
    return run.transcript;
}

Transcript run_lost(Script& script, uint64_t at) {
    Run run(script);
    run.arm({.at = at, .function = nullptr, .kind = OPENCL_FAULT_LOST, .variation = 0, .code = 0});
    for (const Action& action : script.actions()) run.attempt(action, report().failures > 0);
    run.transcript.calls = report().calls;
    run.arm(nothing);
    run.expect_nothing_alive();
    return run.transcript;
}

} // namespace winnow::faults
