// What was enqueued ends before a failure is reported.
#include "cache/failures.hpp"

namespace winnow::cache {

uint64_t launches(const Device& device) {
    winnow_stats stats{};
    device.stats(stats);
    return stats.kernel_launches;
}

void fail(Device& device, bool has_changed, const Error& error) {
    if (!has_changed) throw error;
    try {
        device.finish();
    } catch (const Error&) { // what failed first says more
    }
    throw after_a_change(error);
}

} // namespace winnow::cache
