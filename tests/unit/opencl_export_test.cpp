// What the backend hands out to a host with OpenCL: the memory of its buffers, and the device's UUID.
#include <array>

#include "opencl_host.hpp"

namespace winnow::opencl_host {
namespace {

class opencl_export : public HostWithOpenCl {
protected:
    // The memory of a buffer, and where in it the buffer begins.
    cl_mem exported(winnow_buffer* buffer, uint64_t& offset) {
        void* memory = nullptr;
        EXPECT_EQ(opencl().get_memory(buffer, &memory, &offset), WINNOW_OK) << api().context_message(made_);
        return static_cast<cl_mem>(memory);
    }

    winnow_context* made_ = nullptr;
};

TEST_F(opencl_export, the_host_fills_and_reads_caches_that_the_backend_allocated) {
    std::vector<unsigned char> bytes(memory_bytes, 0xa5);
    const cl::Buffer source = make_memory(context_, bytes);
    ASSERT_EQ(create(context_, queue_, &made_), WINNOW_OK) << message_;
    winnow_buffer* const caches = allocate(made_, memory_bytes);
    uint64_t offset = 77;
    const cl_mem memory = exported(caches, offset);
    ASSERT_NE(memory, nullptr);
    cl_context owner = nullptr;
    ASSERT_EQ(clGetMemObjectInfo(memory, CL_MEM_CONTEXT, sizeof owner, &owner, nullptr), CL_SUCCESS);
    EXPECT_EQ(owner, context_());

    // All of it on one queue: no call in between waits.
    ASSERT_EQ(clEnqueueCopyBuffer(queue_(), source(), memory, 0, offset, memory_bytes, 0, nullptr, nullptr),
              CL_SUCCESS);
    const auto k = Step::cache(nullptr, caches, k_offset);
    const auto v = Step::cache(nullptr, caches, v_offset);
    std::vector<float> out(static_cast<size_t>(q_heads) * head_size, -77);
    ASSERT_EQ(step_.append(api(), made_, k, v), WINNOW_OK) << api().context_message(made_);
    ASSERT_EQ(Step::attend(api(), made_, Step::rows(step_.q.data()), k, v, Step::rows(out.data()), nullptr), WINNOW_OK)
        << api().context_message(made_);
    cl_event copied = nullptr;
    ASSERT_EQ(clEnqueueCopyBuffer(queue_(), memory, source(), offset, 0, memory_bytes, 0, nullptr, &copied),
              CL_SUCCESS);
    const cl::Event copy(copied);
    std::vector<unsigned char> after(memory_bytes);
    ASSERT_EQ(clEnqueueReadBuffer(queue_(), source(), CL_TRUE, 0, after.size(), after.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    ASSERT_EQ(opencl().wait_event(made_, copy()), WINNOW_OK) << api().context_message(made_);
    ASSERT_EQ(api().finish(made_), WINNOW_OK);

    expect_near(out, expected(bytes));
    EXPECT_EQ(after, bytes) << "the caches, or what lies around them";
    EXPECT_EQ(api().buffer_destroy(caches), WINNOW_OK);
    EXPECT_EQ(api().context_destroy(made_), WINNOW_OK);
}

TEST_F(opencl_export, buffer_read_comes_after_a_command_of_the_host_whose_event_was_given) {
    const std::vector<unsigned char> bytes(memory_bytes, 0x5a);
    const cl::Buffer source = make_memory(context_, bytes);
    ASSERT_EQ(create(context_, queue_, &made_), WINNOW_OK) << message_;
    winnow_buffer* const buffer = allocate(made_, memory_bytes);
    uint64_t offset = 0;
    const cl_mem memory = exported(buffer, offset);
    const cl::CommandQueue other = make_queue(context_, device_);
    cl_event enqueued = nullptr;
    ASSERT_EQ(clEnqueueCopyBuffer(other(), source(), memory, 0, offset, memory_bytes, 0, nullptr, &enqueued),
              CL_SUCCESS);
    const cl::Event copy(enqueued);
    ASSERT_EQ(clFlush(other()), CL_SUCCESS);
    ASSERT_EQ(opencl().wait_event(made_, copy()), WINNOW_OK) << api().context_message(made_);
    std::vector<unsigned char> after(memory_bytes);
    ASSERT_EQ(api().buffer_read(buffer, 0, after.data(), after.size()), WINNOW_OK) << api().context_message(made_);
    EXPECT_EQ(after, bytes);
    EXPECT_EQ(api().buffer_destroy(buffer), WINNOW_OK);
    EXPECT_EQ(api().context_destroy(made_), WINNOW_OK);
}

TEST_F(opencl_export, imported_memory_is_handed_out_as_it_lies) {
    const cl::Buffer memory = make_memory(context_, std::vector<unsigned char>(memory_bytes, 0));
    ASSERT_EQ(create(context_, queue_, &made_), WINNOW_OK) << message_;
    winnow_buffer* imported = nullptr;
    ASSERT_EQ(import(made_, memory, &imported, k_offset, cache_bytes), WINNOW_OK) << api().context_message(made_);
    uint64_t offset = 0;
    EXPECT_EQ(exported(imported, offset), memory());
    EXPECT_EQ(offset, k_offset);

    std::vector<unsigned char> bytes(memory_bytes, 7);
    auto desc = sized<winnow_buffer_desc>();
    desc.kind = WINNOW_BUFFER_IMPORT_HOST;
    desc.size = cache_bytes;
    desc.host_data = bytes.data() + k_offset;
    winnow_buffer* borrowed = nullptr;
    ASSERT_EQ(api().buffer_create(made_, &desc, &borrowed), WINNOW_OK) << api().context_message(made_);
    const cl_mem of_host = exported(borrowed, offset);
    std::vector<unsigned char> read(cache_bytes);
    ASSERT_EQ(clEnqueueReadBuffer(queue_(), of_host, CL_TRUE, offset, cache_bytes, read.data(), 0, nullptr, nullptr),
              CL_SUCCESS);
    EXPECT_EQ(read, std::vector<unsigned char>(cache_bytes, 7));
    for (winnow_buffer* buffer : {imported, borrowed}) EXPECT_EQ(api().buffer_destroy(buffer), WINNOW_OK);
    EXPECT_EQ(api().context_destroy(made_), WINNOW_OK);
}

TEST_F(opencl_export, the_uuid_is_the_drivers_or_is_refused_with_the_reason) {
    ASSERT_EQ(create(context_, queue_, &made_), WINNOW_OK) << message_;
    std::array<uint8_t, CL_UUID_SIZE_KHR> uuid{}, of_driver{};
    const int32_t status = opencl().device_uuid(made_, uuid.data());
    if (clGetDeviceInfo(device_, CL_DEVICE_UUID_KHR, sizeof of_driver, of_driver.data(), nullptr) == CL_SUCCESS) {
        EXPECT_EQ(status, WINNOW_OK) << api().context_message(made_);
    } else {
        EXPECT_EQ(status, WINNOW_ERROR_UNSUPPORTED);
        const std::string reason = api().context_message(made_);
        EXPECT_NE(reason.find("cl_khr_device_uuid"), std::string::npos) << reason;
    }
    EXPECT_EQ(uuid, of_driver);
    EXPECT_EQ(api().context_destroy(made_), WINNOW_OK);
}

} // namespace
} // namespace winnow::opencl_host
