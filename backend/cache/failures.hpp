// What a call that fails leaves behind: results that are waited for (device/finishing.hpp), changes that are undone,
// and the status that says whether there were any.
#pragma once

#include <new>

#include "device/finishing.hpp"

namespace winnow::cache {

// Runs what reads or writes a file of rows. Where the file fails it, or there is no memory for rows, `undo` runs.
template <class Action, class Undo>
void undoing(Undo&& undo, Action&& action) {
    try {
        action();
    } catch (const Error& error) {
        if (error.status() == WINNOW_ERROR_IO || error.status() == WINNOW_ERROR_OUT_OF_MEMORY) undo();
        throw;
    } catch (const std::bad_alloc&) {
        undo();
        throw;
    }
}

uint64_t launches(const Device& device);
// Throws a failure; as one after a change where something was changed, and then waits before, so that nothing of what
// failed runs any more.
[[noreturn]] void fail(Device& device, bool has_changed, const Error& error);

// Runs what changes a cache, or outputs, by launches. A failure after the first of them may leave it half done: it is
// the device's then, so that WINNOW_ERROR_OUT_OF_MEMORY says that all is as before. has_begun: so is one before it.
template <class Action>
void changing(Device& device, Action&& action, bool has_begun = false) {
    const uint64_t before = launches(device);
    const auto has_changed = [&] { return has_begun || launches(device) != before; };
    try {
        action();
    } catch (const Error& error) {
        fail(device, has_changed(), error);
    } catch (const std::bad_alloc&) {
        fail(device, has_changed(), Error(WINNOW_ERROR_OUT_OF_MEMORY, "out of host memory"));
    }
}

} // namespace winnow::cache
