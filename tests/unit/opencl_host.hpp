// A host that brings its own OpenCL objects, as it meets the backend: the shared object's table, and nothing of
// backend/ but the wrappers of OpenCL's handles. Results are compared with the reference backend's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "open_backend.hpp"
#include "opencl/cl.hpp"

namespace winnow::opencl_host {

// Whatever the driver finishes with in a thread of its own gets some time.
inline bool eventually(const std::function<bool()>& condition) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
        if (std::chrono::steady_clock::now() > end) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return true;
}

template <typename Desc>
Desc sized() {
    Desc desc{};
    desc.struct_size = sizeof desc;
    return desc;
}

template <class Record>
Record record(uint32_t type) {
    Record made{};
    made.extension.struct_size = sizeof made;
    made.extension.type = type;
    made.extension.flags = WINNOW_EXTENSION_REQUIRED;
    return made;
}

constexpr int64_t q_heads = 4, kv_heads = 2, slots = 11, kv_len = 7, head_size = 24;
constexpr size_t cache_bytes = static_cast<size_t>(kv_heads) * slots * head_size * 2; // of K, and of V, in f16
// Neither is aligned to more than an element.
constexpr size_t k_offset = 34, v_offset = k_offset + cache_bytes + 6, memory_bytes = v_offset + cache_bytes + 50;

inline winnow_tensor tensor(uint32_t type, int64_t element, std::initializer_list<int64_t> shape, const void* data) {
    auto result = sized<winnow_tensor>();
    result.type = type;
    result.data = const_cast<void*>(data);
    int64_t stride = element;
    for (int axis = 3; axis >= 0; --axis) {
        result.shape[axis] = shape.begin()[axis];
        result.stride[axis] = stride;
        stride *= result.shape[axis];
    }
    return result;
}

// One step of a decoder: rows are appended to the caches in another order than they come, then attended to.
struct Step {
    Step() {
        for (auto* values : {&q, &k, &v})
            for (float& value : *values)
                value = static_cast<float>((seed = seed * 1664525u + 1013904223u) >> 8) / 8e6f - 1;
    }

    int32_t append(const winnow_api& api, winnow_context* context, winnow_tensor k_cache, winnow_tensor v_cache) const {
        const auto k_src = tensor(WINNOW_TYPE_F32, 4, {1, kv_heads, kv_len + 1, head_size}, k.data());
        const auto v_src = tensor(WINNOW_TYPE_F32, 4, {1, kv_heads, kv_len + 1, head_size}, v.data());
        const auto rows = tensor(WINNOW_TYPE_I32, 4, {1, 1, 1, kv_len + 1}, row_indices.data());
        auto desc = sized<winnow_kv_append_desc>();
        desc.k_src = &k_src;
        desc.v_src = &v_src;
        desc.k_cache = &k_cache;
        desc.v_cache = &v_cache;
        desc.k_row_indices = &rows;
        return api.kv_append(context, &desc, nullptr);
    }

    static int32_t attend(const winnow_api& api, winnow_context* context, const winnow_tensor& query,
                          winnow_tensor k_cache, winnow_tensor v_cache, const winnow_tensor& out,
                          winnow_event** event) {
        k_cache.shape[2] = v_cache.shape[2] = kv_len;
        auto desc = sized<winnow_sdpa_desc>();
        desc.q = &query;
        desc.k = &k_cache;
        desc.v = &v_cache;
        desc.out = &out;
        return api.sdpa(context, &desc, event);
    }

    static winnow_tensor cache(void* data, winnow_buffer* buffer, uint64_t offset) {
        winnow_tensor result = tensor(WINNOW_TYPE_F16, 2, {1, kv_heads, slots, head_size}, data);
        result.buffer = buffer;
        result.offset = offset;
        return result;
    }
    static winnow_tensor rows(const void* data, winnow_buffer* buffer = nullptr) {
        winnow_tensor result = tensor(WINNOW_TYPE_F32, 4, {1, q_heads, 1, head_size}, data);
        result.buffer = buffer;
        return result;
    }

    uint32_t seed = 7;
    std::vector<float> q = std::vector<float>(static_cast<size_t>(q_heads) * head_size);
    std::vector<float> k = std::vector<float>(static_cast<size_t>(kv_heads) * (kv_len + 1) * head_size);
    std::vector<float> v = k;
    std::vector<int32_t> row_indices{3, 0, 6, -1, 1, 5, 2, 4};
};

inline void expect_near(const std::vector<float>& values, const std::vector<float>& expected) {
    ASSERT_EQ(values.size(), expected.size());
    for (size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(values[i], expected[i], 1e-5f) << "element " << i;
}

inline cl::Context make_context(cl_device_id device) {
    cl_int code = CL_SUCCESS;
    cl::Context context(clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code));
    EXPECT_EQ(code, CL_SUCCESS);
    return context;
}

inline cl::CommandQueue make_queue(const cl::Context& context, cl_device_id device,
                                   cl_command_queue_properties properties = 0) {
    cl_int code = CL_SUCCESS;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    cl::CommandQueue queue(clCreateCommandQueue(context(), device, properties, &code));
#pragma GCC diagnostic pop
    EXPECT_EQ(code, CL_SUCCESS);
    return queue;
}

inline cl::Buffer make_memory(const cl::Context& context, const std::vector<unsigned char>& bytes) {
    cl_int code = CL_SUCCESS;
    auto data = const_cast<unsigned char*>(bytes.data());
    cl::Buffer memory(clCreateBuffer(context(), CL_MEM_READ_WRITE | CL_MEM_COPY_HOST_PTR, bytes.size(), data, &code));
    EXPECT_EQ(code, CL_SUCCESS);
    return memory;
}

template <typename Function, typename Handle>
cl_uint references(Function function, Handle handle, cl_uint what) {
    cl_uint count = 0;
    EXPECT_EQ(function(handle, what, sizeof count, &count, nullptr), CL_SUCCESS);
    return count;
}

class HostWithOpenCl : public testing::Test {
protected:
    void SetUp() override {
        cl_uint platform_count = 0;
        ASSERT_EQ(clGetPlatformIDs(0, nullptr, &platform_count), CL_SUCCESS) << "no OpenCL driver";
        std::vector<cl_platform_id> platforms(platform_count);
        ASSERT_EQ(clGetPlatformIDs(platform_count, platforms.data(), nullptr), CL_SUCCESS);
        cl_uint most_units = 0;
        for (const cl_platform_id platform : platforms) {
            cl_uint count = 0;
            if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count) != CL_SUCCESS) continue;
            std::vector<cl_device_id> devices(count);
            ASSERT_EQ(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), CL_SUCCESS);
            for (const cl_device_id device : devices) {
                cl_uint units = 0;
                clGetDeviceInfo(device, CL_DEVICE_MAX_COMPUTE_UNITS, sizeof units, &units, nullptr);
                if (units > most_units) device_ = device;
                most_units = std::max(most_units, units);
            }
        }
        ASSERT_NE(device_, nullptr) << "no OpenCL driver offers a device";
        context_ = make_context(device_);
        queue_ = make_queue(context_, device_);
    }

    const winnow_api& api() const { return opencl_.api(); }
    const winnow_cache_api& caches() const { return opencl_.caches(); }
    const winnow_opencl_api& opencl() const { return *opencl_.opencl(); }

    int32_t create(const cl::Context& context, const cl::CommandQueue& queue, winnow_context** created,
                   winnow_launch_callback launched = nullptr, void* launched_user_data = nullptr) {
        auto desc = sized<winnow_context_desc>();
        desc.launched = launched;
        desc.launched_user_data = launched_user_data;
        auto objects = record<winnow_opencl_objects>(WINNOW_EXTENSION_OPENCL_OBJECTS);
        objects.context = context();
        objects.device = device_;
        objects.queue = queue();
        desc.next = &objects.extension;
        return api().context_create(&desc, created, message_, sizeof message_);
    }

    int32_t import(winnow_context* context, const cl::Buffer& memory, winnow_buffer** buffer, uint64_t offset,
                   uint64_t size) {
        auto desc = sized<winnow_buffer_desc>();
        desc.kind = WINNOW_BUFFER_IMPORT_DEVICE;
        desc.size = size;
        auto its = record<winnow_opencl_memory>(WINNOW_EXTENSION_OPENCL_MEMORY);
        its.memory = memory();
        its.offset = offset;
        desc.next = &its.extension;
        return api().buffer_create(context, &desc, buffer);
    }

    winnow_buffer* allocate(winnow_context* context, uint64_t size) {
        auto desc = sized<winnow_buffer_desc>();
        desc.kind = WINNOW_BUFFER_ALLOCATE;
        desc.size = size;
        winnow_buffer* buffer = nullptr;
        EXPECT_EQ(api().buffer_create(context, &desc, &buffer), WINNOW_OK) << api().context_message(context);
        return buffer;
    }

    // What the reference backend makes of the step, the caches beginning as `memory`.
    std::vector<float> expected(std::vector<unsigned char>& memory) {
        const winnow_api& reference = reference_.api();
        auto desc = sized<winnow_context_desc>();
        winnow_context* context = nullptr;
        EXPECT_EQ(reference.context_create(&desc, &context, message_, sizeof message_), WINNOW_OK) << message_;
        std::vector<float> out(static_cast<size_t>(q_heads) * head_size, -77);
        const auto k = Step::cache(memory.data() + k_offset, nullptr, 0);
        const auto v = Step::cache(memory.data() + v_offset, nullptr, 0);
        EXPECT_EQ(step_.append(reference, context, k, v), WINNOW_OK) << reference.context_message(context);
        EXPECT_EQ(Step::attend(reference, context, Step::rows(step_.q.data()), k, v, Step::rows(out.data()), nullptr),
                  WINNOW_OK)
            << reference.context_message(context);
        EXPECT_EQ(reference.finish(context), WINNOW_OK);
        EXPECT_EQ(reference.context_destroy(context), WINNOW_OK);
        return out;
    }

    winnow::tools::OpenBackend opencl_{"opencl"}, reference_{"reference"};
    char message_[2048] = "";
    cl_device_id device_ = nullptr;
    cl::Context context_;
    cl::CommandQueue queue_;
    Step step_;
};

} // namespace winnow::opencl_host
