// Makes contexts and queues, or checks the host's.
#include "opencl/worker_queues.hpp"

#include <algorithm>
#include <thread>

namespace winnow::opencl {
namespace {

// Whether the device does its work in the thread that asks for it: a native kernel tells which thread it ran in.
bool computes_in_calling_thread(const WorkerQueue& worker) {
    const auto can = device_value<cl_device_exec_capabilities>(worker.device, CL_DEVICE_EXECUTION_CAPABILITIES);
    if ((can & CL_EXEC_NATIVE_KERNEL) == 0) return false;
    std::thread::id ran_in;
    std::thread::id* argument = &ran_in;
    const auto note_thread = [](void* data) { **static_cast<std::thread::id**>(data) = std::this_thread::get_id(); };
    void (*function)(void*) = note_thread;
    Work work(worker.queue());
    const cl_int code = clEnqueueNativeKernel(worker.queue(), function, &argument, sizeof argument, 0, nullptr, nullptr,
                                              0, nullptr, nullptr);
    if (code == CL_INVALID_OPERATION) return false; // it cannot, whatever it says
    check(code, "clEnqueueNativeKernel");
    work.finish();
    return ran_in == std::this_thread::get_id();
}

template <typename T, typename Handle, typename Function>
T host_value(Function function, const char* call, Handle handle, cl_uint what, const char* field) {
    T value{};
    check_host_object(function(handle, what, sizeof value, &value, nullptr), call,
                      std::string(field) + " is no valid " + field);
    return value;
}

WorkerQueues take_host_objects(const DeviceRequest& request) {
    const auto invalid = [](const std::string& text) { throw Error(WINNOW_ERROR_INVALID_ARGUMENT, text); };
    const auto context = static_cast<cl_context>(request.cl_context);
    const auto device = static_cast<cl_device_id>(request.cl_device_id);
    const auto queue = static_cast<cl_command_queue>(request.cl_command_queue);

    const auto count =
        host_value<cl_uint>(clGetContextInfo, "clGetContextInfo", context, CL_CONTEXT_NUM_DEVICES, "cl_context");
    std::vector<cl_device_id> devices(count);
    check(clGetContextInfo(context, CL_CONTEXT_DEVICES, count * sizeof(cl_device_id), devices.data(), nullptr),
          "clGetContextInfo");
    if (std::find(devices.begin(), devices.end(), device) == devices.end())
        invalid("cl_device_id is not a device of cl_context");
    constexpr const char *call = "clGetCommandQueueInfo", *field = "cl_command_queue";
    if (host_value<cl_context>(clGetCommandQueueInfo, call, queue, CL_QUEUE_CONTEXT, field) != context)
        invalid("cl_command_queue belongs to another context than cl_context");
    if (host_value<cl_device_id>(clGetCommandQueueInfo, call, queue, CL_QUEUE_DEVICE, field) != device)
        invalid("cl_command_queue belongs to another device than cl_device_id");
    const auto properties =
        host_value<cl_command_queue_properties>(clGetCommandQueueInfo, call, queue, CL_QUEUE_PROPERTIES, field);
    if (properties & CL_QUEUE_OUT_OF_ORDER_EXEC_MODE_ENABLE)
        invalid("cl_command_queue executes out of order; expected an in-order queue");
    if (request.launched != nullptr && (properties & CL_QUEUE_PROFILING_ENABLE) == 0)
        invalid("cl_command_queue has no CL_QUEUE_PROFILING_ENABLE; expected with launched");

    WorkerQueues workers;
    workers.entry = describe_device(device);
    // A retain that failed must not be followed by a release, which the wrappers would do.
    WorkerQueue& worker = workers.all.emplace_back();
    check(clRetainContext(context), "clRetainContext");
    worker.context = cl::Context(context, false);
    worker.device = device;
    check(clRetainCommandQueue(queue), "clRetainCommandQueue");
    worker.queue = cl::CommandQueue(queue, false);
    return workers;
}

WorkerQueues choose_worker_queues(const DeviceRequest& request) {
    if (request.cl_context != nullptr) return take_host_objects(request);

    const std::vector<DeviceEntry> devices = list_devices(request.log);
    const bool host_threads = request.parallel_for != nullptr && request.max_threads != 1;
    WorkerQueues workers;
    const auto add = [&](cl_device_id device) {
        workers.all.push_back(make_worker_queue(device, request.launched != nullptr));
    };
    workers.entry = select_device(devices, request.device, host_threads);
    add(workers.entry.devices.front());
    if (!host_threads || !workers.entry.is_multiple()) return workers;

    if (!computes_in_calling_thread(workers.front())) {
        request.log(WINNOW_LOG_INFO, std::string(workers.entry.info.name) +
                                         " does not compute in the calling thread; parallel_for is not used");
        workers = WorkerQueues{};
        workers.entry = select_device(devices, request.device, false);
        add(workers.entry.devices.front());
        return workers;
    }
    size_t count = workers.entry.devices.size();
    if (request.max_threads != 0) count = std::min<size_t>(count, request.max_threads);
    while (workers.all.size() < count) add(workers.entry.devices[workers.all.size()]);
    return workers;
}

} // namespace

WorkerQueue make_worker_queue(cl_device_id device, bool is_timed) {
    cl_int code = CL_SUCCESS;
    WorkerQueue worker;
    worker.device = device;
    worker.context = cl::Context(clCreateContext(nullptr, 1, &device, nullptr, nullptr, &code));
    check(code, "clCreateContext");
    worker.queue = make_queue(worker, is_timed ? CL_QUEUE_PROFILING_ENABLE : 0);
    return worker;
}

cl::CommandQueue make_queue(const WorkerQueue& worker, cl_command_queue_properties properties) {
    cl_int code = CL_SUCCESS;
    // The call of OpenCL 1.x: deprecated, and the only one that every version has.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
    cl::CommandQueue queue(clCreateCommandQueue(worker.context(), worker.device, properties, &code));
#pragma GCC diagnostic pop
    check(code, "clCreateCommandQueue");
    return queue;
}

WorkerQueues open_worker_queues(const DeviceRequest& request, const VariantOptions& forced) {
    WorkerQueues workers = choose_worker_queues(request);
    workers.is_hosts = request.cl_command_queue != nullptr;
    workers.quirks = quirks_of(workers.entry.info, forced.quirks, request.log);
    const auto most = device_value<size_t>(workers.front().device, CL_DEVICE_MAX_PARAMETER_SIZE);
    const bool takes_few = most < most_argument_bytes && !workers.quirks.has(Quirk::argument_bytes);
    workers.has_params_in_memory = forced.params_in_memory.value_or(takes_few);
    return workers;
}

} // namespace winnow::opencl
