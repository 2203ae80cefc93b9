// Steps of a cache that must not wait, on a queue that goes on only when the test lets it: each returns nevertheless,
// and all of them come out as on a queue that nobody holds up.
#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "alike_layers.hpp"
#include "cache/cache.hpp"
#include "opencl/worker_queues.hpp"
#include "opencl_test.hpp"

namespace winnow::opencl::no_wait {
namespace {

using cache::Cache;
using cache::CacheStep;

const cache::AlikeLayers sizes = {2, 2, 32, 32, 240, 0, 4};
constexpr int64_t query_heads = 4, sequence_count = 2, step_count = 60;

// Holds up a device's queue until it is opened; after a long time it opens by itself, so that a test which waits fails.
class Gate {
public:
    Gate(Device& device, const WorkerQueue& worker) {
        cl_int code = CL_SUCCESS;
        event_ = cl::Event(clCreateUserEvent(worker.context(), &code));
        check(code, "clCreateUserEvent");
        device.wait_cl_event(event_());
        guard_ = std::jthread([this] {
            std::unique_lock lock(mutex_);
            if (changed_.wait_for(lock, std::chrono::seconds(60), [&] { return is_open_; })) return;
            was_forced_ = is_open_ = true;
            clSetUserEventStatus(event_(), CL_COMPLETE);
        });
    }
    ~Gate() { open(); }
    bool open() { // false: it was open before
        const std::lock_guard lock(mutex_);
        if (!is_open_) clSetUserEventStatus(event_(), CL_COMPLETE);
        is_open_ = true;
        changed_.notify_all();
        return !was_forced_;
    }

private:
    cl::Event event_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool is_open_ = false, was_forced_ = false;
    std::jthread guard_; // the last, so that it ends first
};

// A tensor of F32 in host memory or in a buffer.
class Numbers {
public:
    Numbers(Device& device, bool in_buffer, int64_t heads, int64_t tokens, std::mt19937& random)
        : values_(static_cast<size_t>(heads * tokens * 32)) {
        for (float& value : values_) value = static_cast<float>(random() % 1000) / 250 - 2;
        tensor_.type = Type::f32;
        tensor_.shape = {1, heads, tokens, 32};
        tensor_.stride = {heads * tokens * 128, tokens * 128, 128, 4};
        tensor_.data = reinterpret_cast<std::byte*>(values_.data());
        if (!in_buffer) return;
        buffer_ = device.allocate(4 * values_.size());
        buffer_->write(0, values_.data(), 4 * values_.size());
        tensor_.data = nullptr;
        tensor_.buffer = buffer_.get();
    }
    const Tensor& tensor() const { return tensor_; }
    std::vector<float> values() const { // once the device has finished
        std::vector<float> now = values_;
        if (buffer_) buffer_->read(0, now.data(), 4 * now.size());
        return now;
    }

private:
    std::vector<float> values_;
    std::unique_ptr<Buffer> buffer_;
    Tensor tensor_;
};

// One entry for each of some sequences.
struct Drawn {
    struct Entry {
        int64_t sequence, tokens;
        Numbers k, v, q, out;
    };
    bool marks_event = false;
    std::vector<Entry> entries{};
    std::unique_ptr<Event> event{};

    std::vector<CacheStep> steps(int64_t layer, bool may_wait) const {
        std::vector<CacheStep> all;
        for (const Entry& entry : entries) {
            CacheStep& step = all.emplace_back();
            step.layer = layer;
            step.sequence = entry.sequence;
            step.may_wait = may_wait;
            step.scale = 1;
            step.k = entry.k.tensor();
            step.v = entry.v.tensor();
            step.q = entry.q.tensor();
            step.out = entry.out.tensor();
        }
        return all;
    }
};

// Steps of layer after layer; the same of each seed.
std::vector<Drawn> draw_steps(Device& device, bool in_buffers) {
    std::mt19937 random(5);
    std::vector<Drawn> all;
    std::vector<int64_t> left(sequence_count, sizes.context);
    for (int64_t i = 0; i < step_count; ++i) {
        Drawn& step = all.emplace_back();
        step.marks_event = random() % 4 == 0;
        for (int64_t sequence = 0; sequence < sequence_count; ++sequence) {
            const uint32_t kind = random() % 12;
            const int64_t tokens = kind == 0 ? 40 : kind == 1 ? 9 : kind == 2 ? 2 : 1;
            int64_t& its = left[static_cast<size_t>(sequence)];
            if (tokens > its || (sequence > 0 && random() % 3 == 0)) continue;
            its -= tokens;
            step.entries.push_back({sequence, tokens, Numbers(device, in_buffers, sizes.kv_heads, tokens, random),
                                    Numbers(device, in_buffers, sizes.kv_heads, tokens, random),
                                    Numbers(device, in_buffers, query_heads, tokens, random),
                                    Numbers(device, in_buffers, query_heads, tokens, random)});
        }
        if (step.entries.empty()) all.pop_back();
    }
    return all;
}

DeviceRequest on_queue(const WorkerQueue& worker, const std::string& variants) {
    DeviceRequest request = cpu_request(variants);
    request.cl_context = worker.context();
    request.cl_device_id = worker.device;
    request.cl_command_queue = worker.queue();
    return request;
}

class opencl_no_wait : public opencl_test {
protected:
    void run(const std::string& config, const std::string& variants) {
        if (is_over()) return;
        SCOPED_TRACE(config + ", " + variants);
        const bool in_buffers = !variants.empty();
        const WorkerQueues workers = open_worker_queues(cpu_request(), parse_variants(""));
        const auto device = backend::create(on_queue(workers.front(), variants)),
                   freely = backend::create(cpu_request(variants));
        std::vector<Drawn> steps = draw_steps(*device, in_buffers), others = draw_steps(*freely, in_buffers);
        const cache::CacheRequest request{config, sizes, sequence_count, 0, {}};
        Cache held_up(*device, request), twin(*freely, request);
        for (int64_t sequence = 0; sequence < sequence_count; ++sequence)
            for (Cache* each : {&held_up, &twin}) each->reserve(sequence, sizes.context);
        for (Drawn& each : others) // which compiles what there is to compile
            for (int64_t layer = 0; layer < sizes.layers; ++layer) twin.step(each.steps(layer, true));
        freely->finish();

        const uint64_t before = launches(*device);
        Gate gate(*device, workers.front());
        for (Drawn& each : steps)
            for (int64_t layer = 0; layer < sizes.layers; ++layer) {
                ASSERT_NO_THROW(held_up.step(each.steps(layer, false), each.marks_event));
                if (each.marks_event) each.event = device->mark();
            }
        const std::unique_ptr<Event> last = device->mark();
        EXPECT_GT(status_of(static_cast<cl_event>(last->cl_event())), CL_COMPLETE) << "the queue is not held up";
        ASSERT_TRUE(gate.open()) << "a step waited for what was enqueued before";
        EXPECT_GE(launches(*device) - before, steps.size());
        device->finish();

        ASSERT_EQ(steps.size(), others.size());
        for (size_t i = 0; i < steps.size(); ++i)
            for (size_t entry = 0; entry < steps[i].entries.size(); ++entry)
                EXPECT_EQ(steps[i].entries[entry].out.values(), others[i].entries[entry].out.values()) << "step " << i;
    }

    static uint64_t launches(const Device& device) {
        winnow_stats stats{};
        device.stats(stats);
        return stats.kernel_launches;
    }
};

TEST_F(opencl_no_wait, no_step_waits_for_a_queue_that_is_held_up) {
    for (const char* config : {"winnow:budget=1/4,residual=16,k=q8_0,v=q8_0", "h2o:budget=64,residual=0,cadence=7",
                               "winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8"})
        run(config, "");
}

TEST_F(opencl_no_wait, no_step_waits_where_tensors_lie_in_buffers_of_a_device_with_memory_of_its_own) {
    for (const char* config : {"winnow:budget=1/4,residual=16,k=q8_0,v=q8_0",
                               "winnow:recall=host,k=q8_0,v=q8_0,budget=40000B,residual=16,cadence=8"})
        run(config, "host_memory=copy");
}

std::string refusal_of(Cache& cache, const Drawn& drawn, bool marks_event) {
    try {
        cache.step(drawn.steps(0, false), marks_event);
    } catch (const Error& error) {
        EXPECT_EQ(error.status(), WINNOW_ERROR_WOULD_WAIT) << error.what();
        return error.what();
    }
    return "";
}

TEST_F(opencl_no_wait, host_memory_and_what_is_on_its_way_there_are_waited_for_where_it_is_copied) {
    const auto device = backend::create(cpu_request("host_memory=copy"));
    Cache cache(*device, {"none", sizes, sequence_count, 0, {}});
    for (int64_t sequence = 0; sequence < sequence_count; ++sequence) cache.reserve(sequence, sizes.context);
    const std::vector<Drawn> in_host_memory = draw_steps(*device, false), in_buffers = draw_steps(*device, true);
    EXPECT_NE(refusal_of(cache, in_host_memory[0], false).find("put all of them into buffers"), std::string::npos);
    cache.step(in_host_memory[0].steps(0, true));
    EXPECT_NE(refusal_of(cache, in_buffers[1], true).find("call finish before"), std::string::npos);
    EXPECT_EQ(refusal_of(cache, in_buffers[1], false), "");
    device->finish();
    EXPECT_EQ(refusal_of(cache, in_buffers[2], true), "");
    EXPECT_EQ(refusal_of(cache, in_buffers[3], false), "");
}

TEST_F(opencl_no_wait, a_context_that_computes_on_the_hosts_threads_waits) {
    std::atomic<int> calls{0};
    const auto device = backend::create(cpu_request("", &calls));
    if (device->host_threads() == 1) GTEST_SKIP() << undivided;
    Cache cache(*device, {"none", sizes, sequence_count, 0, {}});
    for (int64_t sequence = 0; sequence < sequence_count; ++sequence) cache.reserve(sequence, sizes.context);
    EXPECT_NE(refusal_of(cache, draw_steps(*device, true)[0], false).find("parallel_for"), std::string::npos);
}

} // namespace
} // namespace winnow::opencl::no_wait
