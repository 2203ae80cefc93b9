// Operations divided among the host's threads, on PoCL's basic devices; and what any device has to do with memory.
#include <gtest/gtest.h>

#include <atomic>
#include <numeric>
#include <thread>

#include "opencl/runtime_state.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl {
namespace {

struct Params {
    uint64_t input, output, counter;
    uint32_t groups, length;
};

// Each group adds up its row; the last one adds up all rows, and puts the counter back to zero.
constexpr std::string_view source = R"(
typedef struct { ulong input, output, counter; uint groups, length; } params;
kernel void sum(params p, global uchar* input, global uchar* output, global uchar* counter, uint group_base) {
    if (group_base == 0xffffffffu) return;
    const uint group = get_group_id(0) + group_base;
    global const uint* row = (global const uint*)(input + p.input) + group * p.length;
    global uint* sums = (global uint*)(output + p.output);
    uint total = 0;
    for (uint i = 0; i < p.length; ++i) total += row[i];
    sums[group] = total;
    global atomic_uint* done = (global atomic_uint*)(counter + p.counter);
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_release, memory_scope_device);
    if (atomic_fetch_add_explicit(done, 1u, memory_order_acq_rel, memory_scope_device) != p.groups - 1) return;
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acquire, memory_scope_device);
    uint all = 0;
    for (uint i = 0; i < p.groups; ++i) all += sums[i];
    sums[p.groups] = all;
    atomic_store_explicit(done, 0u, memory_order_relaxed, memory_scope_device);
}
)";

Tensor host_tensor(std::vector<uint32_t>& values) {
    Tensor tensor;
    tensor.type = Type::i32;
    tensor.data = reinterpret_cast<std::byte*>(values.data());
    tensor.shape = {1, 1, 1, static_cast<int64_t>(values.size())};
    tensor.stride = {4, 4, 4, 4};
    return tensor;
}

struct Sums {
    explicit Sums(RuntimeState& state, std::string_view options = {})
        : kernel(state.programs.kernel_of_source("sum", source, "sum", options)) {}

    // False if a sum is wrong.
    bool operator()(Runtime& runtime, uint32_t groups, uint32_t length, uint32_t seed, uint64_t work) {
        std::vector<uint32_t> input(static_cast<size_t>(groups) * length);
        std::iota(input.begin(), input.end(), seed);
        std::vector<uint32_t> output(groups + 1, 0);
        Operation operation(runtime);
        const Bound in = operation.bind(host_tensor(input), Access::read);
        const Bound out = operation.bind(host_tensor(output), Access::write);
        const Memory* counter = runtime.scratch(64);
        const Params params{in.offset, out.offset, 0, groups, length};
        operation.launch(kernel, params, {in.memory, out.memory, counter},
                         Grid{.groups = {groups, 1, 1}, .work = work});
        operation.complete(false);
        runtime.finish();
        uint32_t all = 0;
        for (uint32_t group = 0; group < groups; ++group) {
            const auto first = input.begin() + static_cast<size_t>(group) * length;
            const uint32_t expected = std::accumulate(first, first + length, 0u);
            if (output[group] != expected) return false;
            all += expected;
        }
        return output[groups] == all;
    }

    Kernel& kernel;
};

struct TestRuntime {
    explicit TestRuntime(const DeviceRequest& wanted) : runtime(wanted), state(&runtime.state()) {}
    Runtime runtime;
    RuntimeState* state;
};

using opencl_worker_queues = opencl_test;

constexpr uint64_t large = 1'000'000'000;

TEST_F(opencl_worker_queues, without_host_threads_a_device_works_alone) {
    TestRuntime test(cpu_request());
    EXPECT_FALSE(test.state->workers.is_divided());
    Sums sums(*test.state);
    for (uint32_t i = 0; i < 50; ++i) ASSERT_TRUE(sums(test.runtime, 1 + i % 20, 30, i, large)) << i;
    winnow_stats stats{};
    test.runtime.stats(stats);
    EXPECT_EQ(stats.kernel_launches, 50u);
}

TEST_F(opencl_worker_queues, divided_operations_compute_the_same) {
    std::atomic<int> calls{0};
    TestRuntime test(cpu_request("", &calls));
    if (!test.state->workers.is_divided()) WINNOW_SKIP_WITHOUT_POCL(undivided);
    EXPECT_EQ(test.runtime.capabilities().compute_units, test.state->workers.all.size());
    Sums sums(*test.state);
    int divided = 0;
    for (uint32_t i = 0; i < 3000; ++i) {
        const uint32_t groups = 1 + i * 7 % 41;
        const bool is_small = i % 3 == 0; // small ones run on the first worker queue between the others
        divided += !is_small && groups > 1;
        ASSERT_TRUE(sums(test.runtime, groups, 1 + i % 300, i, is_small ? 0 : large)) << i;
    }
    EXPECT_GT(calls, divided * 9 / 10) << "hardly an operation was divided";
    EXPECT_LE(calls, divided);
}

TEST_F(opencl_worker_queues, memory_of_several_queues_is_not_handed_out) {
    std::atomic<int> calls{0};
    TestRuntime test(cpu_request("", &calls));
    if (!test.state->workers.is_divided()) WINNOW_SKIP_WITHOUT_POCL(undivided);
    const auto buffer = test.runtime.allocate(64);
    try {
        buffer->cl_memory();
        ADD_FAILURE() << "a cl_mem of one of the queues";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_UNSUPPORTED);
        EXPECT_NE(std::string(error.what()).find("no single cl_context"), std::string::npos) << error.what();
    }
}

TEST_F(opencl_worker_queues, memory_that_is_copied_is_of_one_queue) {
    std::atomic<int> calls{0};
    Runtime runtime(cpu_request("", &calls), parse_variants("host_memory=copy"));
    EXPECT_FALSE(runtime.state().workers.is_divided());
    EXPECT_FALSE(runtime.capabilities().zero_copy);
    Sums sums(runtime.state());
    for (uint32_t i = 0; i < 50; ++i) ASSERT_TRUE(sums(runtime, 1 + i % 20, 30, i, large)) << i;
    EXPECT_EQ(calls, 0);
}

TEST_F(opencl_worker_queues, contexts_in_different_threads_do_not_disturb_each_other) {
    std::atomic<int> calls{0};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            TestRuntime test(t == 2 ? cpu_request() : cpu_request("", &calls));
            Sums sums(*test.state);
            for (uint32_t i = 0; i < 300; ++i) wrong += !sums(test.runtime, 2 + i % 9, 100, i + t, large);
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

TEST_F(opencl_worker_queues, grids_that_grow_in_several_threads_at_once_do_not_confuse_the_driver) {
    std::atomic<int> calls{0};
    std::atomic<int> wrong{0};
    std::vector<std::thread> threads;
    for (uint32_t t = 0; t < 3; ++t)
        threads.emplace_back([&, t] {
            TestRuntime test(cpu_request("", &calls));
            // Another kernel than the other tests': what a driver knows of those should not help.
            Sums sums(*test.state, "-DGROWING");
            for (uint32_t groups = 2; groups < 400; ++groups) wrong += !sums(test.runtime, groups, 3, t, large);
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
}

TEST_F(opencl_worker_queues, a_grid_wider_than_one_launch_may_be_is_cut) {
    TestRuntime test(cpu_request());
    Sums sums(*test.state);
    EXPECT_TRUE(sums(test.runtime, 200'001, 2, 5, 0));
}

TEST_F(opencl_worker_queues, a_group_of_more_work_items_than_the_device_takes_is_told) {
    RuntimeState state(cpu_request());
    Kernel& kernel =
        state.programs.kernel_of_source("nothing", "kernel void nothing(ulong p, uint group_base) {}", "nothing", {});
    Operation operation(state);
    try {
        operation.launch(kernel, uint64_t{0}, {}, Grid{.groups = {1, 1, 1}, .group_size = {1 << 20, 1, 1}});
        ADD_FAILURE() << "it was launched";
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_DEVICE) << error.what(); // a shape's self-test leaves it for the next
        EXPECT_NE(std::string(error.what()).find("and it has 1048576"), std::string::npos) << error.what();
    }
}

TEST_F(opencl_worker_queues, max_threads_limits_the_queues) {
    std::atomic<int> calls{0};
    DeviceRequest wanted = cpu_request("", &calls);
    wanted.max_threads = 2;
    TestRuntime test(wanted);
    if (!test.state->workers.is_divided()) WINNOW_SKIP_WITHOUT_POCL(undivided);
    EXPECT_EQ(test.state->workers.all.size(), 2u);
}

TEST_F(opencl_worker_queues, a_failure_in_a_host_thread_is_thrown_in_the_callers_and_the_next_call_works) {
    std::atomic<int> calls{0};
    TestRuntime test(cpu_request("", &calls));
    Sums sums(*test.state);
    ASSERT_TRUE(sums(test.runtime, 8, 10, 1, large));
    {
        Operation operation(test.runtime);
        const Params params{};
        const Memory* counter = test.runtime.scratch(64);
        // A group size that no device has.
        const Grid grid{.groups = {4, 1, 1}, .group_size = {1u << 30, 1, 1}, .work = large};
        EXPECT_THROW(operation.launch(sums.kernel, params, {counter, counter, counter}, grid), Error);
        EXPECT_THROW(operation.launch(sums.kernel, params, {counter}, grid), Error) << "too few arguments";
    }
    EXPECT_TRUE(sums(test.runtime, 8, 10, 2, large));
}

TEST_F(opencl_worker_queues, imports_survive_more_host_memory_than_they_have_places_for) {
    TestRuntime test(cpu_request());
    Sums sums(*test.state);
    std::vector<std::unique_ptr<std::byte[]>> spread; // moves the next vectors to other pages
    for (uint32_t i = 0; i < 600; ++i) {
        spread.push_back(std::make_unique<std::byte[]>(5000));
        ASSERT_TRUE(sums(test.runtime, 3, 1 + i * 5, i, 0)) << i;
    }
}

TEST_F(opencl_worker_queues, scratch_that_grows_is_zeroed) {
    TestRuntime test(cpu_request());
    Sums sums(*test.state);
    ASSERT_TRUE(sums(test.runtime, 5, 10, 1, 0));
    test.runtime.scratch(10'000'000);
    EXPECT_TRUE(sums(test.runtime, 5, 10, 2, 0));
    const Memory* first = test.runtime.scratch(100);
    EXPECT_EQ(test.runtime.scratch(200), first);
    EXPECT_NE(test.runtime.scratch(200, 1), first);
}

} // namespace
} // namespace winnow::opencl
