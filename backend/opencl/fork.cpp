// A handler that runs in the child of each fork.
#include "opencl/fork.hpp"

#include <pthread.h>

#include <atomic>

#include "device/device.hpp"

namespace winnow::opencl {
namespace {

std::atomic<bool> is_used{false}, is_child{false};

} // namespace

void begin_use() {
    if (is_forked()) throw forked_error();
    if (is_used.exchange(true)) return;
    if (::pthread_atfork(nullptr, nullptr, [] { is_child = true; }) == 0) return;
    is_used = false;
    throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "pthread_atfork has no memory for a handler");
}

bool is_forked() noexcept { return is_child.load(std::memory_order_relaxed); }

} // namespace winnow::opencl
