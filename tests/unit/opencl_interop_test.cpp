// Memory, queues and events of the host's own in contexts of the backend (opencl_host.hpp).
#include <cstring>

#include "opencl_host.hpp"

namespace winnow::opencl_host {
namespace {

using opencl_interop = HostWithOpenCl;

TEST_F(opencl_interop, caches_in_the_hosts_memory_are_used_where_they_lie_and_every_reference_is_given_back) {
    std::vector<unsigned char> bytes(memory_bytes, 0xa5);
    const cl::Buffer memory = make_memory(context_, bytes);
    const auto counts = [&] {
        return std::vector<cl_uint>{references(clGetContextInfo, context_(), CL_CONTEXT_REFERENCE_COUNT),
                                    references(clGetCommandQueueInfo, queue_(), CL_QUEUE_REFERENCE_COUNT),
                                    references(clGetMemObjectInfo, memory(), CL_MEM_REFERENCE_COUNT)};
    };
    // A driver may keep the queue's last command, and that the queue: let there be one.
    unsigned char byte = 0;
    ASSERT_EQ(clEnqueueReadBuffer(queue_(), memory(), CL_TRUE, 0, 1, &byte, 0, nullptr, nullptr), CL_SUCCESS);
    const std::vector<cl_uint> before = counts();

    winnow_context* context = nullptr;
    ASSERT_EQ(create(context_, queue_, &context), WINNOW_OK) << message_;
    winnow_buffer* k_buffer = nullptr;
    winnow_buffer* v_buffer = nullptr;
    ASSERT_EQ(import(context, memory, &k_buffer, k_offset, cache_bytes), WINNOW_OK) << api().context_message(context);
    // A part of the offset is the tensor's.
    constexpr uint64_t part = 20;
    ASSERT_EQ(import(context, memory, &v_buffer, v_offset - part, cache_bytes + part), WINNOW_OK);
    const std::vector<cl_uint> during = counts();
    for (size_t i = 0; i < before.size(); ++i) EXPECT_GT(during[i], before[i]) << "object " << i << " is not retained";

    const auto k = Step::cache(nullptr, k_buffer, 0);
    const auto v = Step::cache(nullptr, v_buffer, part);
    std::vector<float> out(static_cast<size_t>(q_heads) * head_size, -77);
    ASSERT_EQ(step_.append(api(), context, k, v), WINNOW_OK) << api().context_message(context);
    ASSERT_EQ(Step::attend(api(), context, Step::rows(step_.q.data()), k, v, Step::rows(out.data()), nullptr),
              WINNOW_OK)
        << api().context_message(context);
    // The host reads on its own queue, which is the context's: in order, without a call in between.
    std::vector<unsigned char> after(memory_bytes);
    ASSERT_EQ(clEnqueueReadBuffer(queue_(), memory(), CL_TRUE, 0, after.size(), after.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    ASSERT_EQ(api().finish(context), WINNOW_OK);

    expect_near(out, expected(bytes));
    EXPECT_EQ(after, bytes) << "the caches, or what lies around them";
    EXPECT_EQ(api().buffer_destroy(v_buffer), WINNOW_OK);
    EXPECT_EQ(api().buffer_destroy(k_buffer), WINNOW_OK);
    EXPECT_EQ(api().context_destroy(context), WINNOW_OK);
    EXPECT_TRUE(eventually([&] { return counts() == before; }))
        << testing::PrintToString(counts()) << ", before " << testing::PrintToString(before);
}

TEST_F(opencl_interop, launches_are_told_of_where_the_hosts_queue_measures_them) {
    std::vector<std::string> kernels;
    const auto add = [](void* all, const winnow_launch* launch) {
        static_cast<std::vector<std::string>*>(all)->push_back(launch->kernel + (" " + std::to_string(launch->bytes)));
    };
    winnow_context* context = nullptr;
    EXPECT_EQ(create(context_, queue_, &context, add, &kernels), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::strstr(message_, "CL_QUEUE_PROFILING_ENABLE"), nullptr) << message_;
    const cl::CommandQueue queue = make_queue(context_, device_, CL_QUEUE_PROFILING_ENABLE);
    ASSERT_EQ(create(context_, queue, &context, add, &kernels), WINNOW_OK) << message_;
    std::vector<unsigned char> bytes(memory_bytes, 0);
    const auto k = Step::cache(bytes.data() + k_offset, nullptr, 0);
    const auto v = Step::cache(bytes.data() + v_offset, nullptr, 0);
    ASSERT_EQ(step_.append(api(), context, k, v), WINNOW_OK) << api().context_message(context);
    ASSERT_EQ(api().finish(context), WINNOW_OK);
    ASSERT_EQ(kernels.size(), 1u);
    constexpr uint64_t bytes_of_row = head_size * (4 + 2); // read in f32, written in f16
    EXPECT_EQ(kernels.front(), "kv_append " + std::to_string(2 * kv_heads * (kv_len + 1) * bytes_of_row));
    EXPECT_EQ(api().context_destroy(context), WINNOW_OK);
}

TEST_F(opencl_interop, work_waits_for_the_hosts_event_and_its_own_event_tells_the_host) {
    std::vector<unsigned char> bytes(memory_bytes, 0);
    const cl::Buffer memory = make_memory(context_, bytes);
    const std::vector<float> right = expected(bytes);
    cl_int code = CL_SUCCESS;
    const cl::Event user(clCreateUserEvent(context_(), &code));
    ASSERT_EQ(code, CL_SUCCESS);
    const cl_uint before = references(clGetEventInfo, user(), CL_EVENT_REFERENCE_COUNT);

    winnow_context* context = nullptr;
    ASSERT_EQ(create(context_, queue_, &context), WINNOW_OK) << message_;
    winnow_buffer* caches = nullptr;
    ASSERT_EQ(import(context, memory, &caches, 0, memory_bytes), WINNOW_OK) << api().context_message(context);
    winnow_buffer* query = allocate(context, step_.q.size() * 4);
    winnow_buffer* result = allocate(context, step_.q.size() * 4);
    ASSERT_EQ(api().buffer_write(query, 0, step_.q.data(), step_.q.size() * 4), WINNOW_OK);
    const auto k = Step::cache(nullptr, caches, k_offset);
    const auto v = Step::cache(nullptr, caches, v_offset);
    ASSERT_EQ(step_.append(api(), context, k, v), WINNOW_OK) << api().context_message(context);
    ASSERT_EQ(api().finish(context), WINNOW_OK);

    ASSERT_EQ(opencl().wait_event(context, user()), WINNOW_OK) << api().context_message(context);
    winnow_event* event = nullptr;
    ASSERT_EQ(Step::attend(api(), context, Step::rows(nullptr, query), k, v, Step::rows(nullptr, result), &event),
              WINNOW_OK)
        << api().context_message(context);
    ASSERT_EQ(api().flush(context), WINNOW_OK);
    void* handle = nullptr;
    ASSERT_EQ(opencl().get_event(event, &handle), WINNOW_OK);
    const auto cl_status = [&] {
        cl_int status = CL_QUEUED;
        EXPECT_EQ(clGetEventInfo(static_cast<cl_event>(handle), CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status,
                                 &status, nullptr),
                  CL_SUCCESS);
        return status;
    };
    for (int i = 0; i < 20; ++i) {
        ASSERT_GT(cl_status(), CL_COMPLETE) << "it did not wait";
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }

    ASSERT_EQ(clSetUserEventStatus(user(), CL_COMPLETE), CL_SUCCESS);
    EXPECT_EQ(api().event_wait(event), WINNOW_OK);
    EXPECT_EQ(cl_status(), CL_COMPLETE);
    std::vector<float> out(step_.q.size(), -77);
    ASSERT_EQ(api().buffer_read(result, 0, out.data(), out.size() * 4), WINNOW_OK);
    expect_near(out, right);

    EXPECT_EQ(api().event_destroy(event), WINNOW_OK);
    for (winnow_buffer* buffer : {caches, query, result}) EXPECT_EQ(api().buffer_destroy(buffer), WINNOW_OK);
    EXPECT_EQ(api().context_destroy(context), WINNOW_OK);
    EXPECT_TRUE(eventually([&] { return references(clGetEventInfo, user(), CL_EVENT_REFERENCE_COUNT) == before; }));
}

// PoCL 3.1 ends the process where a command without an event of its own waits for one that fails.
TEST_F(opencl_interop, a_host_event_that_fails_is_told_by_every_wait_for_what_came_after_it) {
    std::vector<unsigned char> bytes(memory_bytes, 0);
    const std::vector<float> right = expected(bytes);
    const auto user_event = [&] {
        cl_int code = CL_SUCCESS;
        cl::Event event(clCreateUserEvent(context_(), &code));
        EXPECT_EQ(code, CL_SUCCESS);
        return event;
    };
    winnow_context* context = nullptr;
    ASSERT_EQ(create(context_, queue_, &context), WINNOW_OK) << message_;
    const auto k = Step::cache(bytes.data() + k_offset, nullptr, 0),
               v = Step::cache(bytes.data() + v_offset, nullptr, 0);
    std::vector<float> out(step_.q.size(), -77);
    const auto attend = [&](winnow_event** event) {
        return Step::attend(api(), context, Step::rows(step_.q.data()), k, v, Step::rows(out.data()), event);
    };
    const auto is_told = [&](int32_t status) {
        const std::string text = api().context_message(context);
        return status == WINNOW_ERROR_DEVICE &&
               text.find("opencl_wait_event failed with CL_OUT_OF_RESOURCES (-5)") < text.size();
    };
    const auto expect_right = [&] {
        std::fill(out.begin(), out.end(), -77.0F);
        ASSERT_EQ(attend(nullptr), WINNOW_OK) << api().context_message(context);
        ASSERT_EQ(api().finish(context), WINNOW_OK) << api().context_message(context);
        expect_near(out, right);
    };

    const cl::Event pending = user_event();
    winnow_event *before = nullptr, *after = nullptr;
    ASSERT_EQ(attend(&before), WINNOW_OK);
    ASSERT_EQ(opencl().wait_event(context, pending()), WINNOW_OK) << api().context_message(context);
    ASSERT_EQ(attend(nullptr), WINNOW_OK);
    ASSERT_EQ(attend(&after), WINNOW_OK);
    ASSERT_EQ(api().flush(context), WINNOW_OK);
    ASSERT_EQ(clSetUserEventStatus(pending(), CL_OUT_OF_RESOURCES), CL_SUCCESS);
    EXPECT_TRUE(is_told(api().event_wait(after))) << api().context_message(context);
    EXPECT_EQ(api().event_wait(before), WINNOW_OK);
    EXPECT_TRUE(is_told(api().finish(context))) << api().context_message(context);
    EXPECT_EQ(api().finish(context), WINNOW_OK) << "it is told once";
    EXPECT_TRUE(is_told(api().event_wait(after))) << "an event stays what it is";
    for (winnow_event* event : {before, after}) EXPECT_EQ(api().event_destroy(event), WINNOW_OK);
    expect_right();

    const cl::Event over = user_event(); // before anybody waits for it
    ASSERT_EQ(clSetUserEventStatus(over(), CL_OUT_OF_RESOURCES), CL_SUCCESS);
    EXPECT_TRUE(is_told(opencl().wait_event(context, over()))) << api().context_message(context);
    expect_right();

    const cl::Event lost = user_event(); // which the end of a buffer or a cache leaves to the next wait
    winnow_buffer* buffer = allocate(context, 64);
    auto desc = sized<winnow_cache_desc>();
    desc.config = "none:k=f16,v=f16";
    desc.layers = desc.q_num_heads = desc.kv_num_heads = 1;
    desc.head_size = head_size;
    desc.context = 64;
    winnow_cache* cache = nullptr;
    ASSERT_EQ(caches().create(context, &desc, &cache), WINNOW_OK) << api().context_message(context);
    ASSERT_EQ(opencl().wait_event(context, lost()), WINNOW_OK);
    ASSERT_EQ(attend(nullptr), WINNOW_OK);
    ASSERT_EQ(clSetUserEventStatus(lost(), CL_OUT_OF_RESOURCES), CL_SUCCESS);
    EXPECT_EQ(caches().destroy(cache), WINNOW_OK) << api().context_message(context);
    EXPECT_EQ(api().buffer_destroy(buffer), WINNOW_OK) << api().context_message(context);
    EXPECT_TRUE(is_told(api().finish(context)));

    const cl::Event last = user_event(); // which the context's end is told of
    ASSERT_EQ(opencl().wait_event(context, last()), WINNOW_OK);
    ASSERT_EQ(attend(nullptr), WINNOW_OK);
    ASSERT_EQ(clSetUserEventStatus(last(), CL_OUT_OF_RESOURCES), CL_SUCCESS);
    EXPECT_EQ(api().context_destroy(context), WINNOW_ERROR_DEVICE);
    for (const cl::Event* event : {&pending, &over, &lost, &last})
        EXPECT_TRUE(eventually([&] { return references(clGetEventInfo, (*event)(), CL_EVENT_REFERENCE_COUNT) == 1; }));
}

TEST_F(opencl_interop, objects_of_another_context_are_refused) {
    const cl::Context other = make_context(device_);
    const cl::Buffer memory = make_memory(other, std::vector<unsigned char>(memory_bytes, 0));
    cl_int code = CL_SUCCESS;
    const cl::Event user(clCreateUserEvent(other(), &code));
    ASSERT_EQ(code, CL_SUCCESS);
    const cl::CommandQueue queue = make_queue(other, device_);
    winnow_context* context = nullptr;
    EXPECT_EQ(create(context_, queue, &context), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(message_).find("another context"), std::string::npos) << message_;
    EXPECT_EQ(context, nullptr);

    ASSERT_EQ(create(context_, queue_, &context), WINNOW_OK) << message_;
    winnow_buffer* buffer = nullptr;
    EXPECT_EQ(import(context, memory, &buffer, 0, memory_bytes), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(api().context_message(context)).find("another cl_context"), std::string::npos);
    EXPECT_EQ(buffer, nullptr);
    EXPECT_EQ(opencl().wait_event(context, user()), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(api().context_message(context)).find("another cl_context"), std::string::npos);
    EXPECT_EQ(api().context_destroy(context), WINNOW_OK);
    EXPECT_EQ(clSetUserEventStatus(user(), CL_COMPLETE), CL_SUCCESS);
}

TEST_F(opencl_interop, a_queue_that_runs_out_of_order_is_refused) {
    const cl::CommandQueue queue = make_queue(context_, device_, CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE);
    winnow_context* context = nullptr;
    EXPECT_EQ(create(context_, queue, &context), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_NE(std::string(message_).find("in-order"), std::string::npos) << message_;
    EXPECT_EQ(context, nullptr);
}

TEST_F(opencl_interop, an_import_beyond_the_memorys_end_is_refused) {
    const cl::Buffer memory = make_memory(context_, std::vector<unsigned char>(memory_bytes, 0));
    winnow_context* context = nullptr;
    ASSERT_EQ(create(context_, queue_, &context), WINNOW_OK) << message_;
    winnow_buffer* buffer = nullptr;
    EXPECT_EQ(import(context, memory, &buffer, 1, memory_bytes), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(import(context, memory, &buffer, memory_bytes + 1, 1), WINNOW_ERROR_INVALID_ARGUMENT);
    EXPECT_EQ(buffer, nullptr);
    EXPECT_EQ(api().context_destroy(context), WINNOW_OK);
}

} // namespace
} // namespace winnow::opencl_host
