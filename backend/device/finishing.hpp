// Launches whose results go to memory that may not outlive a failure.
#pragma once

#include "device/device.hpp"

namespace winnow {

// Runs, and waits for what was enqueued, also where it fails in the middle. Where the waiting fails, results that it
// was to bring do not come any more: the caller's memory for them may go.
template <class Action>
void finishing(Device& device, Action&& action) {
    const uint64_t results = device.next_result();
    try {
        action();
        device.finish();
    } catch (...) {
        try {
            device.finish(); // also where it was the waiting that failed
        } catch (...) {      // what failed first says more
            device.drop_results_from(results);
        }
        throw;
    }
}

} // namespace winnow
