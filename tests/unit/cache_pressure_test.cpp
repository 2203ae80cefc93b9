// Memory pressure as Linux tells it, and as a host does.
#include "cache/plan/pressure.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "cache/cache.hpp"
#include "cache_fake_device.hpp"
#include "temporary_folder.hpp"

namespace winnow::cache {
namespace {

TEST(cache_pressure, is_the_larger_of_stalls_and_memory_taken) {
    const TemporaryFolder temporary;
    const std::filesystem::path folder = temporary.path();
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
    const std::optional<double> here = memory_pressure();
    ASSERT_TRUE(here);
    EXPECT_GE(*here, 0);
    EXPECT_LE(*here, 1);
}

class cache_pressure_groups : public testing::Test {
protected:
    void SetUp() override { write("proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 900 kB\n"); }
    void write(const std::string& name, const std::string& text) {
        const std::filesystem::path path = folder_.file(name);
        std::filesystem::create_directories(path.parent_path());
        std::ofstream(path) << text;
    }
    double pressure() { return memory_pressure(folder_.file("proc"), folder_.file("cgroup")).value(); }

private:
    const TemporaryFolder folder_;
};

TEST_F(cache_pressure_groups, a_limit_of_version_2_counts_without_files_that_can_be_dropped) {
    write("proc/self/cgroup", "0::/user/job\n");
    EXPECT_DOUBLE_EQ(pressure(), .1);
    write("cgroup/user/job/memory.max", "1000\n");
    write("cgroup/user/job/memory.current", "800\n");
    write("cgroup/user/job/memory.stat", "anon 500\ninactive_file 300\n");
    EXPECT_DOUBLE_EQ(pressure(), .5);
    write("cgroup/user/memory.max", "2000\n"); // those above it limit, too
    write("cgroup/user/memory.current", "1800\n");
    EXPECT_DOUBLE_EQ(pressure(), .9);
    write("cgroup/user/memory.max", "max\n");
    write("cgroup/user/memory.pressure", "some avg10=99.00 avg60=0.00 avg300=0.00 total=1\n"); // of others, then
    EXPECT_DOUBLE_EQ(pressure(), .5);
    write("cgroup/user/job/memory.pressure", "some avg10=60.00 avg60=0.00 avg300=0.00 total=1\n");
    EXPECT_DOUBLE_EQ(pressure(), .6);
}

TEST_F(cache_pressure_groups, a_limit_of_version_1_counts) {
    write("proc/self/cgroup", "5:cpu:/else\n4:memory:/job\n0::/\nnothing of this kind\n");
    write("cgroup/memory/job/memory.limit_in_bytes", "1000\n");
    write("cgroup/memory/job/memory.usage_in_bytes", "900\n");
    write("cgroup/memory/job/memory.stat", "inactive_file 1\ntotal_inactive_file 200\n");
    EXPECT_DOUBLE_EQ(pressure(), .7);
    write("cgroup/memory/job/memory.limit_in_bytes", "9223372036854771712\n");
    EXPECT_DOUBLE_EQ(pressure(), .1);
}

TEST_F(cache_pressure_groups, a_path_that_a_container_does_not_see_leaves_the_root) {
    write("proc/self/cgroup", "0::/../outside/job\n");
    write("cgroup/memory.max", "1000\n");
    write("cgroup/memory.current", "400\n");
    EXPECT_DOUBLE_EQ(pressure(), .4);
}

TEST(cache_pressure, reaches_the_eviction_pass) {
    FakeDevice device;
    Cache cache(device, {"hierarchical:k=f32,v=f32", AlikeLayers{1, 1, 2, 2, 1000}, 1, 0, {}});
    const auto trigger = [&] {
        HostRows rows(1, 100, 2);
        CacheStep args;
        args.k = args.v = rows.tensor();
        device.clear();
        cache.step({&args, 1});
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
