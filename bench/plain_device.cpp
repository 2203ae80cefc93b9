// Finds the device, and builds the plain kernels on it.
#include "plain_device.hpp"

#include <algorithm>
#include <cstring>
#include <stdexcept>

#include "plain_kernels.hpp"

namespace winnow::bench {
namespace {

constexpr size_t least_groups = 32; // of a CPU, so that a thread that was kept from its share leaves little behind
constexpr size_t groups_of_a_gpus_unit = 8;

template <typename Handle, typename Query>
std::string text_of(Query query, Handle handle, cl_uint name) {
    char text[1024] = "";
    query(handle, name, sizeof text - 1, text, nullptr);
    return text;
}

struct Found {
    cl_platform_id platform = nullptr;
    std::vector<cl_device_id> devices; // of one name: several where threads can be lent
};

// Names are cut to the size of the field.
Found find_devices(const winnow_device_info& info) {
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    if (clGetPlatformIDs(16, platforms, &platform_count) != CL_SUCCESS) return {};
    for (cl_uint p = 0; p < platform_count && p < 16; ++p) {
        cl_device_id devices[64];
        cl_uint device_count = 0;
        if (clGetDeviceIDs(platforms[p], CL_DEVICE_TYPE_ALL, 64, devices, &device_count) != CL_SUCCESS) continue;
        const std::string platform = text_of(clGetPlatformInfo, platforms[p], CL_PLATFORM_NAME);
        if (platform.compare(0, sizeof info.platform - 1, info.platform) != 0) continue;
        Found found{platforms[p], {}};
        std::string name;
        for (cl_uint d = 0; d < device_count && d < 64; ++d) {
            const std::string device = text_of(clGetDeviceInfo, devices[d], CL_DEVICE_NAME);
            if (device.find(info.name) == std::string::npos && !std::strstr(info.name, device.c_str())) continue;
            if (found.devices.empty()) name = device;
            if (device == name) found.devices.push_back(devices[d]);
        }
        if (!found.devices.empty()) return found;
    }
    return {};
}

} // namespace

void check_cl(cl_int status, const char* call) {
    if (status != CL_SUCCESS) throw std::runtime_error(std::string(call) + " failed with " + std::to_string(status));
}

PlainQueue::PlainQueue(cl_device_id device, bool is_cpu) {
    cl_int status = CL_SUCCESS;
    context_ = Owned<cl_context, clReleaseContext>(clCreateContext(nullptr, 1, &device, nullptr, nullptr, &status));
    check_cl(status, "clCreateContext");
    queue_ = Owned<cl_command_queue, clReleaseCommandQueue>(
        clCreateCommandQueueWithProperties(context_.get(), device, nullptr, &status));
    check_cl(status, "clCreateCommandQueueWithProperties");
    const char* text = plain_kernels;
    const size_t length = std::strlen(text);
    program_ =
        Owned<cl_program, clReleaseProgram>(clCreateProgramWithSource(context_.get(), 1, &text, &length, &status));
    check_cl(status, "clCreateProgramWithSource");
    check_cl(clBuildProgram(program_.get(), 1, &device, is_cpu ? "-DWIDTH=16 -DITEMS=1" : "-DWIDTH=4 -DITEMS=256",
                            nullptr, nullptr),
             "clBuildProgram");
}

OwnedMemory PlainQueue::memory(cl_mem_flags flags, size_t size, void* host) const {
    cl_int status = CL_SUCCESS;
    OwnedMemory made(clCreateBuffer(context_.get(), flags, size, host, &status));
    check_cl(status, "clCreateBuffer");
    return made;
}

void PlainQueue::read(const OwnedMemory& memory, std::vector<cl_uint>& words) const {
    check_cl(clEnqueueReadBuffer(queue_.get(), memory.get(), CL_TRUE, 0, words.size() * sizeof words[0], words.data(),
                                 0, nullptr, nullptr),
             "clEnqueueReadBuffer");
}

void PlainQueue::enqueue(const OwnedKernel& kernel, cl_uint argument, size_t groups, size_t items) const {
    check_cl(clSetKernelArg(kernel.get(), 0, sizeof argument, &argument), "clSetKernelArg");
    enqueue(kernel, groups, items);
}

void PlainQueue::enqueue(const OwnedKernel& kernel, size_t groups, size_t items) const {
    const size_t all = groups * items;
    check_cl(clEnqueueNDRangeKernel(queue_.get(), kernel.get(), 1, nullptr, &all, &items, 0, nullptr, nullptr),
             "clEnqueueNDRangeKernel");
}

std::string platform_version(const winnow_device_info& info) {
    const Found found = find_devices(info);
    return found.devices.empty() ? "" : text_of(clGetPlatformInfo, found.platform, CL_PLATFORM_VERSION);
}

std::unique_ptr<PlainDevice> PlainDevice::of(const Options& options, const winnow_device_info& info) {
    const Found found = find_devices(info);
    if (found.devices.empty()) return nullptr;
    std::unique_ptr<PlainDevice> device(new PlainDevice);
    device->is_cpu_ = info.type == WINNOW_DEVICE_CPU;
    const size_t count = options.host_threads ? std::min<size_t>(options.threads, found.devices.size()) : 1;
    device->compute_units_ = count > 1 ? 1 : std::max<size_t>(info.compute_units, 1);
    for (size_t i = 0; i < count; ++i) device->queues_.emplace_back(found.devices[i], device->is_cpu_);
    return device;
}

size_t PlainDevice::groups() const {
    const size_t of_a_unit = is_cpu_ ? (least_groups + compute_units_ - 1) / compute_units_ : groups_of_a_gpus_unit;
    return of_a_unit * compute_units_;
}

void PlainDevice::run(const std::function<void(size_t)>& task) const {
    const auto run_and_wait = [&](size_t queue) {
        task(queue);
        queues_[queue].finish();
    };
    if (queues_.size() == 1) return run_and_wait(0);
    on_threads(static_cast<uint32_t>(queues_.size()), run_and_wait);
}

} // namespace winnow::bench
