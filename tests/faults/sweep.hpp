// Runs a script while OpenCL's calls fail, and judges what came of it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "opencl_faults.h"
#include "script.hpp"

namespace winnow::faults {

// The layer that this process' OpenCL calls go through, or NULL.
const opencl_faults* opencl_layer();

// A call of OpenCL that was made: in which action, and of which function.
struct ClCall {
    std::string action, function;
    auto operator<=>(const ClCall&) const = default;
};

// Whether a function of OpenCL waits, or asks how what is waited for went. Which error such a call gives decides
// whether the host may wait once more.
bool waits(std::string_view function);

// What every action of a script gave.
struct Transcript {
    std::vector<std::string> results;
    uint64_t calls = 0;              // of OpenCL
    std::vector<ClCall> made;        // those calls
    std::vector<std::string> faults; // what was wrong, for people
};

// Nothing fails.
Transcript run_undisturbed(Script& script);
// One call fails: the plan counts from the script's beginning. What failed is tried again.
Transcript run_with(Script& script, const opencl_fault_plan& plan);
// In every action after the first (which makes the context) that does not release (Effect) each call fails, one after
// the other, until nothing is left to fail: one that waits with each of its function's errors, another one once, by
// turns with each; or `all` with each. Transcript::calls counts the failures.
Transcript run_failing_everything(Script& script, uint32_t kind, bool all);
// The device is lost at a call. Nothing is tried again, and the rest of the script is run all the same.
Transcript run_lost(Script& script, uint64_t at);

// Where a crash or a hang of more than so many seconds happens, stderr says what was being done.
void watch(unsigned seconds);

} // namespace winnow::faults
