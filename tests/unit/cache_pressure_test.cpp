// Memory pressure as Linux tells it, and as a host does.
#include "cache/pressure.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "cache/cache.hpp"
#include "cache_fake_device.hpp"

namespace winnow::cache {
namespace {

TEST(cache_pressure, is_the_larger_of_stalls_and_memory_taken) {
    const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "winnow_pressure";
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder / "pressure");
    EXPECT_FALSE(memory_pressure(folder.string()));
    std::ofstream(folder / "meminfo") << "MemTotal:       16000 kB\nMemFree:  10 kB\nMemAvailable:    4000 kB\n"
                                         "HugePages_Total:       0\nHugepagesize:       2048 kB\n";
    EXPECT_DOUBLE_EQ(memory_pressure(folder.string()).value(), .75);
    std::ofstream(folder / "pressure" / "memory") << "some avg10=12.50 avg60=90.00 avg300=0.00 total=1\n"
                                                     "full avg10=99.00 avg60=0.00 avg300=0.00 total=0\n";
    EXPECT_DOUBLE_EQ(memory_pressure(folder.string()).value(), .75);
    std::filesystem::remove(folder / "meminfo");
    EXPECT_DOUBLE_EQ(memory_pressure(folder.string()).value(), .125);
    std::ofstream(folder / "pressure" / "memory") << "nothing of this kind";
    EXPECT_FALSE(memory_pressure(folder.string()));
    std::filesystem::remove_all(folder);
    const std::optional<double> here = memory_pressure();
    ASSERT_TRUE(here);
    EXPECT_GE(*here, 0);
    EXPECT_LE(*here, 1);
}

TEST(cache_pressure, reaches_the_eviction_pass) {
    FakeDevice device;
    Cache cache(device, {"hierarchical:k=f32,v=f32", {1, 1, 2, 2, 1000}, 1, 1, 0, {}});
    const auto trigger = [&] {
        HostRows rows(1, 100, 2);
        CacheStep args;
        args.k = args.v = rows.tensor();
        device.clear();
        cache.step(args);
        return device.eviction_passes.back().description.trigger;
    };
    EXPECT_EQ(trigger(), (Share{7, 10}));
    cache.set_pressure(.9);
    EXPECT_EQ(trigger(), (Share{0, 1}));
    cache.set_pressure(.2);
    EXPECT_EQ(trigger(), (Share{7, 10}));
    cache.set_pressure(-1);
}

} // namespace
} // namespace winnow::cache
