// The clock by which winnow_launch says when something was, and by which waits are counted.
#pragma once

#include <chrono>
#include <cstdint>

namespace winnow {

inline uint64_t monotonic_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count());
}

} // namespace winnow
