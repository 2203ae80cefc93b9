// What a wait that fails still brings to memory of the caller's.
#include <gtest/gtest.h>

#include <optional>

#include "cache/failures.hpp"
#include "cache_fake_device.hpp"

namespace winnow::cache {
namespace {

class WaitingDevice : public FakeDevice {
public:
    explicit WaitingDevice(int failures) : failures_(failures) {}
    void finish() override {
        if (failures_-- > 0) throw Error(WINNOW_ERROR_DEVICE, "the test wants no wait");
    }
    uint64_t next_result() const override { return results; }
    void drop_results_from(uint64_t result) override { dropped = result; }

    uint64_t results = 7; // of earlier calls
    std::optional<uint64_t> dropped;

private:
    int failures_;
};

// How many waits fail, and what is dropped by the time that the caller's memory goes.
TEST(cache_finishing, results_are_dropped_where_no_wait_brings_them) {
    for (const int failures : {0, 1, 2}) {
        WaitingDevice device(failures);
        const auto run = [&] { finishing(device, [&] { device.results += 3; }); };
        if (failures == 0)
            EXPECT_NO_THROW(run());
        else
            EXPECT_THROW(run(), Error);
        EXPECT_EQ(device.dropped, failures == 2 ? std::optional<uint64_t>(7) : std::nullopt) << failures;
    }
}

} // namespace
} // namespace winnow::cache
