// Runs a script while OpenCL's calls fail, and judges what came of it.
#pragma once

#include <string>
#include <vector>

#include "opencl_faults.h"
#include "script.hpp"

namespace winnow::faults {

// The layer that this process' OpenCL calls go through, or NULL.
const opencl_faults* opencl_layer();

// What every action of a script gave.
struct Transcript {
    std::vector<std::string> results;
    uint64_t calls = 0;              // of OpenCL
    std::vector<std::string> kinds;  // of each call: the action that it belongs to, and the function
    std::vector<std::string> faults; // what was wrong, for people
};

// Nothing fails.
Transcript run_undisturbed(Script& script);
// One call fails: the plan counts from the script's beginning. What failed is tried again.
Transcript run_with(Script& script, const opencl_fault_plan& plan);
// In every action after the first (which makes the context) that does not release (Effect) each call fails once, one
// after the other, until nothing is left to fail; at each another of the function's errors, beginning with `variation`:
// three sweeps from 0, 1 and 2 on have all. Transcript::calls counts those that failed.
Transcript run_failing_everything(Script& script, uint32_t kind, uint32_t variation);
// The device is lost at a call. Nothing is tried again, and the rest of the script is run all the same.
Transcript run_lost(Script& script, uint64_t at);

// Where a crash or a hang of more than so many seconds happens, stderr says what was being done.
void watch(unsigned seconds);

} // namespace winnow::faults
