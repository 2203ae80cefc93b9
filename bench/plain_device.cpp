// Asks the backend for its device, and builds the plain kernels on it.
#include "plain_device.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
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

cl_platform_id platform_of(cl_device_id device) {
    cl_platform_id platform = nullptr;
    check_cl(clGetDeviceInfo(device, CL_DEVICE_PLATFORM, sizeof platform, &platform, nullptr), "clGetDeviceInfo");
    return platform;
}

// The one that a backend computes on, then the others of its name, as there are where threads can be lent. Empty where
// the backend computes without OpenCL. The ICD loader need not list their platform (WINNOW_DRIVER).
std::vector<cl_device_id> devices_of(const Backend& backend) {
    std::vector<cl_device_id> devices;
    backend.look_at_event([&](void* event) {
        cl_command_queue queue = nullptr;
        check_cl(clGetEventInfo(static_cast<cl_event>(event), CL_EVENT_COMMAND_QUEUE, sizeof queue, &queue, nullptr),
                 "clGetEventInfo");
        check_cl(clGetCommandQueueInfo(queue, CL_QUEUE_DEVICE, sizeof(cl_device_id), &devices.emplace_back(), nullptr),
                 "clGetCommandQueueInfo");
    });
    if (devices.empty()) return devices;
    cl_device_id all[64];
    cl_uint count = 0;
    check_cl(clGetDeviceIDs(platform_of(devices[0]), CL_DEVICE_TYPE_ALL, std::size(all), all, &count),
             "clGetDeviceIDs");
    const std::string name = text_of(clGetDeviceInfo, devices[0], CL_DEVICE_NAME);
    for (cl_uint i = 0; i < std::min<size_t>(count, std::size(all)); ++i)
        if (all[i] != devices[0] && text_of(clGetDeviceInfo, all[i], CL_DEVICE_NAME) == name) devices.push_back(all[i]);
    return devices;
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

std::string platform_version(const Backend& backend) {
    const std::vector<cl_device_id> devices = devices_of(backend);
    return devices.empty() ? "" : text_of(clGetPlatformInfo, platform_of(devices[0]), CL_PLATFORM_VERSION);
}

std::unique_ptr<PlainDevice> PlainDevice::of(const Options& options, const Backend& backend) {
    const std::vector<cl_device_id> devices = devices_of(backend);
    if (devices.empty()) return nullptr;
    const winnow_device_info& info = backend.info();
    std::unique_ptr<PlainDevice> device(new PlainDevice);
    device->is_cpu_ = info.type == WINNOW_DEVICE_CPU;
    const size_t count = options.host_threads ? std::min<size_t>(options.threads, devices.size()) : 1;
    device->compute_units_ = count > 1 ? 1 : std::max<size_t>(info.compute_units, 1);
    for (size_t i = 0; i < count; ++i) device->queues_.emplace_back(devices[i], device->is_cpu_);
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
