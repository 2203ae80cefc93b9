// A plain OpenCL kernel that reads memory and does nothing with it.
#define CL_TARGET_OPENCL_VERSION 300
#include <CL/cl.h>

#include <cstring>
#include <stdexcept>

#include "attention.hpp"

namespace winnow::bench {

// One work-item to a group, as CPUs have it, or side by side, as GPUs do.
struct ReadShape {
    const char* kernel;
    size_t groups, items, bytes_of_a_load;
};

namespace {

const char* const source = R"(
__attribute__((reqd_work_group_size(1, 1, 1))) __kernel void read_all(__global const uint16 *data, ulong count,
                                                                      __global uint *sink) {
    __global const uint16 *p = data + get_group_id(0) * count;
    uint16 a = 0, b = 0, c = 0, d = 0;
    for (ulong i = 0; i + 4 <= count; i += 4) {
        a ^= p[i];
        b ^= p[i + 1];
        c ^= p[i + 2];
        d ^= p[i + 3];
    }
    a ^= b ^ c ^ d;
    const uint8 x = a.lo ^ a.hi;
    const uint4 y = x.lo ^ x.hi;
    sink[get_group_id(0)] = y.x ^ y.y ^ y.z ^ y.w;
}

__kernel void read_abreast(__global const uint4 *data, ulong count, __global uint *sink) {
    const ulong step = get_global_size(0);
    uint4 a = 0, b = 0, c = 0, d = 0;
    ulong i = get_global_id(0);
    for (; i + 3 * step < count; i += 4 * step) {
        a ^= data[i];
        b ^= data[i + step];
        c ^= data[i + 2 * step];
        d ^= data[i + 3 * step];
    }
    for (; i < count; i += step) a ^= data[i];
    a ^= b ^ c ^ d;
    if ((a.x ^ a.y ^ a.z ^ a.w) == 1) sink[0] = 1;
}
)";

ReadShape shape_for(const winnow_device_info& info) {
    if (info.type == WINNOW_DEVICE_CPU) return {"read_all", 32, 1, 64};
    return {"read_abreast", 8 * static_cast<size_t>(info.compute_units), 256, 16};
}

void check(cl_int status, const char* what) {
    if (status != CL_SUCCESS) throw std::runtime_error(std::string(what) + " failed with " + std::to_string(status));
}

template <typename Handle, typename Query>
std::string text_of(Query query, Handle handle, cl_uint name) {
    char text[1024] = "";
    query(handle, name, sizeof text - 1, text, nullptr);
    return text;
}

// The device that a backend describes; names are cut to the size of the field.
cl_device_id find_device(const winnow_device_info& info) {
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    check(clGetPlatformIDs(16, platforms, &platform_count), "clGetPlatformIDs");
    for (cl_uint p = 0; p < platform_count && p < 16; ++p) {
        cl_device_id devices[16];
        cl_uint device_count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 16, devices, &device_count) != CL_SUCCESS) continue;
        const std::string platform = text_of(clGetPlatformInfo, platforms[p], CL_PLATFORM_NAME);
        if (platform.compare(0, sizeof info.platform - 1, info.platform) != 0) continue;
        for (cl_uint d = 0; d < device_count && d < 16; ++d) {
            const std::string device = text_of(clGetDeviceInfo, devices[d], CL_DEVICE_NAME);
            if (device.find(info.name) != std::string::npos || std::strstr(info.name, device.c_str()))
                return devices[d];
        }
    }
    throw std::runtime_error(std::string("no OpenCL device is called ") + info.name);
}

} // namespace

struct ReadLimit::State {
    cl_context context = nullptr;
    cl_command_queue queue = nullptr;
    cl_program program = nullptr;
    cl_mem sink = nullptr;
    ReadShape shape{};
    struct Part {
        cl_mem memory;
        cl_kernel kernel;
    };
    std::vector<Part> parts;

    ~State() {
        for (const Part& part : parts) {
            clReleaseKernel(part.kernel);
            clReleaseMemObject(part.memory);
        }
        if (sink) clReleaseMemObject(sink);
        if (program) clReleaseProgram(program);
        if (queue) clReleaseCommandQueue(queue);
        if (context) clReleaseContext(context);
    }
};

ReadLimit::ReadLimit(const winnow_device_info& info, const std::vector<const Memory*>& memory)
    : state_(std::make_unique<State>()) {
    cl_device_id device = find_device(info);
    state_->shape = shape_for(info);
    cl_int status = CL_SUCCESS;
    state_->context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status);
    check(status, "clCreateContext");
    state_->queue = clCreateCommandQueueWithProperties(state_->context, device, nullptr, &status);
    check(status, "clCreateCommandQueueWithProperties");
    const char* text = source;
    state_->program = clCreateProgramWithSource(state_->context, 1, &text, nullptr, &status);
    check(status, "clCreateProgramWithSource");
    check(clBuildProgram(state_->program, 1, &device, "", nullptr, nullptr), "clBuildProgram");
    state_->sink =
        clCreateBuffer(state_->context, CL_MEM_READ_WRITE, state_->shape.groups * sizeof(cl_uint), nullptr, &status);
    check(status, "clCreateBuffer");
    for (const Memory* each : memory) {
        State::Part part{};
        // A device with memory of its own reads a copy there.
        const cl_mem_flags place = info.type == WINNOW_DEVICE_CPU ? CL_MEM_USE_HOST_PTR : CL_MEM_COPY_HOST_PTR;
        part.memory = clCreateBuffer(state_->context, CL_MEM_READ_ONLY | place, each->size(), each->data(), &status);
        check(status, "clCreateBuffer");
        part.kernel = clCreateKernel(state_->program, state_->shape.kernel, &status);
        check(status, "clCreateKernel");
        state_->parts.push_back(part);
        // read_all takes the number of a group's loads, read_abreast that of all.
        const size_t parts = state_->shape.items == 1 ? state_->shape.groups : 1;
        const cl_ulong count = each->size() / parts / state_->shape.bytes_of_a_load;
        check(clSetKernelArg(part.kernel, 0, sizeof part.memory, &part.memory), "clSetKernelArg");
        check(clSetKernelArg(part.kernel, 1, sizeof count, &count), "clSetKernelArg");
        check(clSetKernelArg(part.kernel, 2, sizeof state_->sink, &state_->sink), "clSetKernelArg");
    }
}

ReadLimit::~ReadLimit() = default;

void ReadLimit::run() {
    const size_t all = state_->shape.groups * state_->shape.items;
    for (const State::Part& part : state_->parts) {
        check(clEnqueueNDRangeKernel(state_->queue, part.kernel, 1, nullptr, &all, &state_->shape.items, 0, nullptr,
                                     nullptr),
              "clEnqueueNDRangeKernel");
    }
    check(clFinish(state_->queue), "clFinish");
}

} // namespace winnow::bench
