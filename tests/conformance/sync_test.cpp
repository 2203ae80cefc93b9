// Order and completion: a later operation sees what an earlier one wrote, events complete, contexts are apart.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "elements.hpp"
#include "session.hpp"
#include "test_tensor.hpp"
#include "winnow_opencl.h"

namespace winnow::conformance {
namespace {

// A cache of one KV head that grows by one row a step, and attention over it whose answer is known: all keys are
// equal, so that the output is the mean of the values so far.
struct GrowingCache {
    static constexpr int64_t slots = 40, size = 16;

    const winnow_api& api;
    winnow_context* context;
    winnow_buffer *k = nullptr, *v = nullptr, *out = nullptr, *row = nullptr, *index = nullptr, *query = nullptr;

    GrowingCache(const winnow_api& table, winnow_context* on) : api(table), context(on) {
        k = create(slots * size * 2);
        v = create(slots * size * 2);
        out = create(slots * size * 4);
        row = create(slots * size * 4);
        index = create(slots * 4);
        query = create(size * 4);
        std::vector<float> rows(slots * size);
        std::vector<int32_t> indices(slots);
        for (int64_t t = 0; t < slots; ++t) {
            indices[static_cast<size_t>(t)] = static_cast<int32_t>(t);
            for (int64_t d = 0; d < size; ++d) rows[static_cast<size_t>(t * size + d)] = static_cast<float>(t);
        }
        const std::vector<float> ones(size, 1);
        EXPECT_EQ(api.buffer_write(row, 0, rows.data(), rows.size() * 4), WINNOW_OK);
        EXPECT_EQ(api.buffer_write(index, 0, indices.data(), indices.size() * 4), WINNOW_OK);
        EXPECT_EQ(api.buffer_write(query, 0, ones.data(), ones.size() * 4), WINNOW_OK);
    }
    ~GrowingCache() {
        for (winnow_buffer* buffer : {k, v, out, row, index, query}) EXPECT_EQ(api.buffer_destroy(buffer), WINNOW_OK);
    }
    GrowingCache(const GrowingCache&) = delete;
    GrowingCache& operator=(const GrowingCache&) = delete;

    winnow_buffer* create(int64_t bytes) {
        winnow_buffer_desc desc{};
        desc.struct_size = sizeof desc;
        desc.kind = WINNOW_BUFFER_ALLOCATE;
        desc.size = static_cast<uint64_t>(bytes);
        winnow_buffer* buffer = nullptr;
        EXPECT_EQ(api.buffer_create(context, &desc, &buffer), WINNOW_OK) << api.context_message(context);
        return buffer;
    }

    static winnow_tensor view(winnow_buffer* buffer, uint32_t type, int64_t rows, int64_t first,
                              int64_t elements = size) {
        const auto element = static_cast<int64_t>(element_size(type));
        winnow_tensor tensor{};
        tensor.struct_size = sizeof tensor;
        tensor.type = type;
        tensor.buffer = buffer;
        tensor.offset = static_cast<uint64_t>(first * elements * element);
        const int64_t shape[] = {1, 1, rows, elements};
        const int64_t stride[] = {rows * elements * element, rows * elements * element, elements * element, element};
        std::copy(shape, shape + 4, tensor.shape);
        std::copy(stride, stride + 4, tensor.stride);
        return tensor;
    }

    // Row t of the values; keys stay zero. Nothing is waited for.
    int32_t append(int64_t t, winnow_event** event = nullptr) {
        winnow_tensor src = view(row, WINNOW_TYPE_F32, 1, t), cache = view(v, WINNOW_TYPE_F16, slots, 0);
        winnow_tensor rows = view(index, WINNOW_TYPE_I32, 1, t, 1);
        winnow_kv_append_desc desc{};
        desc.struct_size = sizeof desc;
        desc.v_src = &src;
        desc.v_cache = &cache;
        desc.v_row_indices = &rows;
        const int32_t status =
            context == subject().context() ? subject().run(desc, event) : api.kv_append(context, &desc, event);
        overwrite(src, cache, rows, desc);
        return status;
    }
    int32_t attend(int64_t t, winnow_event** event = nullptr) {
        winnow_tensor q = view(query, WINNOW_TYPE_F32, 1, 0), keys = view(k, WINNOW_TYPE_F16, t + 1, 0);
        winnow_tensor values = view(v, WINNOW_TYPE_F16, t + 1, 0), result = view(out, WINNOW_TYPE_F32, 1, t);
        winnow_sdpa_desc desc{};
        desc.struct_size = sizeof desc;
        desc.q = &q;
        desc.k = &keys;
        desc.v = &values;
        desc.out = &result;
        const int32_t status =
            context == subject().context() ? subject().run(desc, event) : api.sdpa(context, &desc, event);
        overwrite(q, keys, values, result, desc);
        return status;
    }
    // A description is the caller's, who has other things in its place when the call has returned and work may run.
    template <class... Structs>
    static void overwrite(Structs&... all) {
        (std::fill_n(reinterpret_cast<volatile unsigned char*>(&all), sizeof all, 0xff), ...);
    }
    // The mean of 0 .. t in every row t.
    void expect_means(int64_t steps) {
        std::vector<float> back(slots * size);
        ASSERT_EQ(api.buffer_read(out, 0, back.data(), back.size() * 4), WINNOW_OK);
        for (int64_t t = 0; t < steps; ++t)
            for (int64_t d = 0; d < size; ++d)
                ASSERT_NEAR(back[static_cast<size_t>(t * size + d)], static_cast<double>(t) / 2, 1e-4) << "step " << t;
    }
};

class sync : public testing::Test {
protected:
    const winnow_api& api = subject().api();
};

TEST_F(sync, operations_are_carried_out_in_order) {
    GrowingCache cache(api, subject().context());
    for (int64_t t = 0; t < GrowingCache::slots; ++t) {
        ASSERT_EQ(cache.append(t), WINNOW_OK) << subject().message();
        ASSERT_EQ(cache.attend(t), WINNOW_OK) << subject().message();
    }
    cache.expect_means(GrowingCache::slots); // a blocking read is enough
}

TEST_F(sync, events_complete) {
    GrowingCache cache(api, subject().context());
    winnow_event *appended = nullptr, *attended = nullptr;
    ASSERT_EQ(cache.append(0, &appended), WINNOW_OK);
    ASSERT_EQ(cache.attend(0, &attended), WINNOW_OK);
    ASSERT_NE(appended, nullptr);
    ASSERT_NE(attended, nullptr);
    ASSERT_EQ(api.flush(subject().context()), WINNOW_OK);
    ASSERT_EQ(api.event_wait(attended), WINNOW_OK);
    EXPECT_EQ(api.event_wait(appended), WINNOW_OK) << "the earlier one is complete when the later one is";
    EXPECT_EQ(api.event_wait(attended), WINNOW_OK) << "again";
    EXPECT_EQ(api.event_destroy(appended), WINNOW_OK);
    EXPECT_EQ(api.event_destroy(attended), WINNOW_OK);
    EXPECT_EQ(api.event_destroy(nullptr), WINNOW_OK);
    cache.expect_means(1);
}

TEST_F(sync, an_event_may_go_before_its_work_is_done) {
    GrowingCache cache(api, subject().context());
    for (int64_t t = 0; t < GrowingCache::slots; ++t) {
        winnow_event *appended = nullptr, *attended = nullptr;
        ASSERT_EQ(cache.append(t, &appended), WINNOW_OK);
        ASSERT_EQ(cache.attend(t, &attended), WINNOW_OK);
        ASSERT_EQ(api.event_destroy(appended), WINNOW_OK);
        ASSERT_EQ(api.event_destroy(attended), WINNOW_OK);
    }
    ASSERT_EQ(api.finish(subject().context()), WINNOW_OK);
    cache.expect_means(GrowingCache::slots);
}

TEST_F(sync, descriptions_are_not_needed_after_the_call) {
    GrowingCache cache(api, subject().context()); // which overwrites each
    for (int64_t t = 0; t < 10; ++t) {
        ASSERT_EQ(cache.append(t), WINNOW_OK);
        ASSERT_EQ(cache.attend(t), WINNOW_OK);
    }
    cache.expect_means(10);
}

TEST_F(sync, flush_and_finish_may_be_called_at_any_time) {
    for (int at = 0; at < 3; ++at) {
        EXPECT_EQ(api.flush(subject().context()), WINNOW_OK);
        EXPECT_EQ(api.finish(subject().context()), WINNOW_OK);
    }
}

TEST_F(sync, destroying_a_context_waits_and_takes_what_remains) {
    winnow_context* context = subject().new_context();
    auto cache = std::make_unique<GrowingCache>(api, context);
    winnow_event* event = nullptr;
    ASSERT_EQ(cache->append(0, &event), WINNOW_OK);
    ASSERT_EQ(cache->attend(0), WINNOW_OK);
    cache.reset();
    EXPECT_EQ(api.context_destroy(context), WINNOW_OK) << "with an event left";
    EXPECT_EQ(api.context_destroy(nullptr), WINNOW_OK);
}

TEST_F(sync, destroying_a_context_completes_what_was_enqueued) {
    constexpr int64_t steps = 50, keys = 3000, size = GrowingCache::size;
    // Zero keys, so that each output is the mean of the values.
    std::vector<float> query(size, 1), k(keys * size, 0), v(keys * size), out(steps * size, -1);
    for (size_t at = 0; at < v.size(); ++at) v[at] = static_cast<float>(at / size % 2);
    std::vector<float> kept_out(steps * size, -1);
    winnow_context* context = subject().new_context();
    winnow_buffer_desc desc{};
    desc.struct_size = sizeof desc;
    desc.kind = WINNOW_BUFFER_IMPORT_HOST;
    desc.size = kept_out.size() * 4;
    desc.host_data = kept_out.data();
    winnow_buffer *imported = nullptr, *allocated = nullptr;
    ASSERT_EQ(api.buffer_create(context, &desc, &imported), WINNOW_OK) << api.context_message(context);
    desc.kind = WINNOW_BUFFER_ALLOCATE;
    desc.host_data = nullptr;
    ASSERT_EQ(api.buffer_create(context, &desc, &allocated), WINNOW_OK) << api.context_message(context);
    for (int64_t step = 0; step < steps; ++step)
        for (winnow_buffer* buffer : {static_cast<winnow_buffer*>(nullptr), imported, allocated}) {
            auto at_host = [](std::vector<float>& memory, int64_t rows, int64_t first) {
                winnow_tensor tensor = GrowingCache::view(nullptr, WINNOW_TYPE_F32, rows, first);
                tensor.data = memory.data();
                return tensor;
            };
            const winnow_tensor q = at_host(query, 1, 0), keys_view = at_host(k, keys, 0);
            const winnow_tensor values = at_host(v, keys, 0);
            const winnow_tensor result =
                buffer ? GrowingCache::view(buffer, WINNOW_TYPE_F32, 1, step) : at_host(out, 1, step);
            winnow_sdpa_desc sdpa{};
            sdpa.struct_size = sizeof sdpa;
            sdpa.q = &q;
            sdpa.k = &keys_view;
            sdpa.v = &values;
            sdpa.out = &result;
            ASSERT_EQ(api.sdpa(context, &sdpa, nullptr), WINNOW_OK) << api.context_message(context);
        }
    EXPECT_EQ(api.context_destroy(context), WINNOW_OK) << "with two buffers left";
    for (float value : out) ASSERT_NEAR(value, 0.5, 1e-4) << "host memory";
    if (subject().info().capabilities & WINNOW_CAPABILITY_UNIFIED_MEMORY) {
        for (float value : kept_out) ASSERT_NEAR(value, 0.5, 1e-4) << "imported";
    }
}

TEST_F(sync, contexts_do_not_share_buffers) {
    winnow_context* other = subject().new_context();
    GrowingCache here(api, subject().context());
    {
        GrowingCache there(api, other);
        std::swap(here.v, there.v);
        EXPECT_EQ(here.append(0), WINNOW_ERROR_INVALID_ARGUMENT);
        EXPECT_NE(subject().message().find("v_cache"), std::string::npos) << subject().message();
        std::swap(here.v, there.v);
        EXPECT_EQ(here.append(0), WINNOW_OK);
    }
    EXPECT_EQ(api.context_destroy(other), WINNOW_OK);
}

TEST_F(sync, contexts_may_be_used_from_threads_at_once) {
    std::atomic<int> failures = 0;
    std::vector<std::thread> threads;
    for (int at = 0; at < 4; ++at)
        threads.emplace_back([&] {
            try {
                winnow_context* context = subject().new_context();
                {
                    GrowingCache cache(api, context);
                    for (int64_t t = 0; t < GrowingCache::slots; ++t)
                        failures += cache.append(t) != WINNOW_OK || cache.attend(t) != WINNOW_OK;
                    cache.expect_means(GrowingCache::slots);
                }
                failures += api.context_destroy(context) != WINNOW_OK;
            } catch (const std::exception&) {
                ++failures;
            }
        });
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(failures, 0);
}

TEST_F(sync, a_context_counts_what_it_did) {
    winnow_context* context = subject().new_context();
    {
        GrowingCache cache(api, context);
        for (int64_t t = 0; t < 5; ++t) EXPECT_EQ(cache.append(t), WINNOW_OK);
        for (int64_t t = 0; t < 3; ++t) EXPECT_EQ(cache.attend(t), WINNOW_OK);
        winnow_stats stats{};
        stats.struct_size = sizeof stats;
        EXPECT_EQ(api.context_stats(context, &stats), WINNOW_OK);
        EXPECT_EQ(stats.kv_append_calls, 5u);
        EXPECT_EQ(stats.sdpa_calls, 3u);
        EXPECT_EQ(stats.tokens_appended, 5u);
        EXPECT_GE(stats.kernel_launches, 8u);
    }
    EXPECT_EQ(api.context_destroy(context), WINNOW_OK);
}

// What a host was told of launches.
struct Told {
    struct Launch {
        std::string kernel;
        uint64_t begin_ns, end_ns, bytes;
    };
    std::vector<Launch> launches;
    static void WINNOW_CALL add(void* told, const winnow_launch* launch) {
        EXPECT_EQ(launch->struct_size, sizeof *launch);
        static_cast<Told*>(told)->launches.push_back({launch->kernel, launch->begin_ns, launch->end_ns, launch->bytes});
    }
};

TEST_F(sync, a_context_tells_of_each_launch_and_when_it_was) {
    const auto now = [] {
        const auto time = std::chrono::steady_clock::now().time_since_epoch();
        return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::nanoseconds>(time).count());
    };
    constexpr uint64_t clocks_differ = 1'000'000'000; // at most, and far less than monotonic clocks of other kinds
    Told told;
    const uint64_t before = now();
    winnow_context* context = subject().new_context(Told::add, &told);
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    {
        GrowingCache cache(api, context);
        for (int64_t t = 0; t < 3; ++t) {
            ASSERT_EQ(cache.append(t), WINNOW_OK);
            ASSERT_EQ(cache.attend(t), WINNOW_OK);
        }
        ASSERT_EQ(api.finish(context), WINNOW_OK);
        ASSERT_EQ(api.context_stats(context, &stats), WINNOW_OK);
        EXPECT_EQ(told.launches.size(), stats.kernel_launches);
        ASSERT_EQ(cache.append(3), WINNOW_OK);
        ASSERT_EQ(cache.attend(3), WINNOW_OK);
        ASSERT_EQ(api.context_stats(context, &stats), WINNOW_OK);
    }
    EXPECT_EQ(api.context_destroy(context), WINNOW_OK);
    ASSERT_EQ(told.launches.size(), stats.kernel_launches) << "what was not over when the context went";
    uint64_t last = before - std::min(before, clocks_differ), attention_bytes = 0;
    for (const Told::Launch& each : told.launches) {
        EXPECT_FALSE(each.kernel.empty());
        EXPECT_GE(each.begin_ns, last) << each.kernel;
        EXPECT_GE(each.end_ns, each.begin_ns) << each.kernel;
        last = each.begin_ns;
        if (each.kernel.starts_with("sdpa")) attention_bytes = std::max(attention_bytes, each.bytes);
    }
    EXPECT_LE(last, now() + clocks_differ);
    constexpr uint64_t row_bytes = 2 * GrowingCache::size;
    EXPECT_TRUE(attention_bytes == 0 || attention_bytes == 2 * 4 * row_bytes) << attention_bytes << " of four rows";
}

class opencl : public sync {};

TEST_F(opencl, an_event_is_one_of_opencl) {
    const void* table = nullptr;
    const int32_t status = api.get_table(WINNOW_OPENCL_TABLE, WINNOW_OPENCL_VERSION, &table, nullptr, 0);
    if (status == WINNOW_ERROR_UNIMPLEMENTED) {
        subject().note_not_offered("the table " WINNOW_OPENCL_TABLE);
        GTEST_SKIP() << "NOT OFFERED: the backend has no table of OpenCL";
    }
    ASSERT_EQ(status, WINNOW_OK);
    const auto& functions = *static_cast<const winnow_opencl_api*>(table);
    EXPECT_EQ(functions.wait_event(subject().context(), nullptr), WINNOW_ERROR_INVALID_ARGUMENT);
    GrowingCache cache(api, subject().context());
    winnow_event* event = nullptr;
    ASSERT_EQ(cache.append(0, &event), WINNOW_OK);
    void* cl_event = nullptr;
    EXPECT_EQ(functions.get_event(event, &cl_event), WINNOW_OK) << subject().message();
    EXPECT_NE(cl_event, nullptr);
    EXPECT_EQ(api.event_destroy(event), WINNOW_OK);
}

} // namespace
} // namespace winnow::conformance
