// An OpenCL layer (OPENCL_LAYERS of the ICD loader) between a program and its drivers: it counts calls and living
// objects, and lets a chosen call fail. opencl_faults.h is how a test tells it which. Everything that
// libwinnow_opencl.so calls is in the list below; the test faults.calls compares the two.
#include <CL/cl_layer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "opencl_faults.h"

namespace {

// Function, and what a success does to the number of living objects.
#define FUNCTIONS(X)                                                                                                   \
    X(clGetPlatformIDs, 0)                                                                                             \
    X(clGetPlatformInfo, 0)                                                                                            \
    X(clGetDeviceIDs, 0)                                                                                               \
    X(clGetDeviceInfo, 0)                                                                                              \
    X(clRetainDevice, 1)                                                                                               \
    X(clReleaseDevice, -1)                                                                                             \
    X(clCreateContext, 1)                                                                                              \
    X(clRetainContext, 1)                                                                                              \
    X(clReleaseContext, -1)                                                                                            \
    X(clGetContextInfo, 0)                                                                                             \
    X(clCreateCommandQueue, 1)                                                                                         \
    X(clRetainCommandQueue, 1)                                                                                         \
    X(clReleaseCommandQueue, -1)                                                                                       \
    X(clGetCommandQueueInfo, 0)                                                                                        \
    X(clCreateBuffer, 1)                                                                                               \
    X(clRetainMemObject, 1)                                                                                            \
    X(clReleaseMemObject, -1)                                                                                          \
    X(clGetMemObjectInfo, 0)                                                                                           \
    X(clCreateProgramWithSource, 1)                                                                                    \
    X(clCreateProgramWithBinary, 1)                                                                                    \
    X(clRetainProgram, 1)                                                                                              \
    X(clReleaseProgram, -1)                                                                                            \
    X(clBuildProgram, 0)                                                                                               \
    X(clGetProgramInfo, 0)                                                                                             \
    X(clGetProgramBuildInfo, 0)                                                                                        \
    X(clCreateKernel, 1)                                                                                               \
    X(clRetainKernel, 1)                                                                                               \
    X(clReleaseKernel, -1)                                                                                             \
    X(clGetKernelInfo, 0)                                                                                              \
    X(clSetKernelArg, 0)                                                                                               \
    X(clGetKernelWorkGroupInfo, 0)                                                                                     \
    X(clCreateUserEvent, 1)                                                                                            \
    X(clSetUserEventStatus, 0)                                                                                         \
    X(clWaitForEvents, 0)                                                                                              \
    X(clGetEventInfo, 0)                                                                                               \
    X(clGetEventProfilingInfo, 0)                                                                                      \
    X(clRetainEvent, 1)                                                                                                \
    X(clReleaseEvent, -1)                                                                                              \
    X(clFlush, 0)                                                                                                      \
    X(clFinish, 0)                                                                                                     \
    X(clEnqueueReadBuffer, 0)                                                                                          \
    X(clEnqueueWriteBuffer, 0)                                                                                         \
    X(clEnqueueFillBuffer, 0)                                                                                          \
    X(clEnqueueMapBuffer, 0)                                                                                           \
    X(clEnqueueUnmapMemObject, 0)                                                                                      \
    X(clEnqueueNDRangeKernel, 0)                                                                                       \
    X(clEnqueueNativeKernel, 0)                                                                                        \
    X(clEnqueueMarkerWithWaitList, 0)                                                                                  \
    X(clEnqueueBarrierWithWaitList, 0)

enum class Id : size_t {
#define X(name, change) name,
    FUNCTIONS(X)
#undef X
};

constexpr std::array names = {
#define X(name, change) #name,
    FUNCTIONS(X)
#undef X
};

constexpr std::array object_changes = {
#define X(name, change) change,
    FUNCTIONS(X)
#undef X
};

bool is_release(Id id) { return object_changes[static_cast<size_t>(id)] < 0; }
bool is_wait(Id id) { return id == Id::clFinish || id == Id::clWaitForEvents; }

// What the specification lets a function fail with when nobody made a mistake.
std::vector<cl_int> errors_of(Id id) {
    switch (id) {
    case Id::clGetPlatformIDs:
    case Id::clGetPlatformInfo: return {CL_OUT_OF_HOST_MEMORY};
    case Id::clCreateBuffer:
    case Id::clEnqueueFillBuffer:
    case Id::clEnqueueMapBuffer:
    case Id::clEnqueueNDRangeKernel:
    case Id::clEnqueueNativeKernel:
        return {CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY};
    case Id::clEnqueueReadBuffer:
    case Id::clEnqueueWriteBuffer:
        return {CL_OUT_OF_RESOURCES, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_MEM_OBJECT_ALLOCATION_FAILURE};
    case Id::clCreateContext: return {CL_OUT_OF_HOST_MEMORY, CL_DEVICE_NOT_AVAILABLE, CL_OUT_OF_RESOURCES};
    case Id::clBuildProgram: return {CL_BUILD_PROGRAM_FAILURE, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES};
    case Id::clCreateProgramWithBinary: return {CL_INVALID_BINARY, CL_OUT_OF_HOST_MEMORY, CL_OUT_OF_RESOURCES};
    case Id::clWaitForEvents:
        return {CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY};
    default: return {CL_OUT_OF_RESOURCES, CL_OUT_OF_HOST_MEMORY};
    }
}

const cl_icd_dispatch* driver = nullptr;
std::atomic<int64_t> living{0};
std::atomic<bool> hides_unified_memory{false};

std::mutex mutex; // of what follows
bool is_paused = false;
opencl_fault_plan plan{};
opencl_fault_report so_far{};
std::vector<const char*> counted; // the functions of so_far.calls

// The error that this call has to fail with, or CL_SUCCESS.
cl_int next_error(Id id, uint32_t kind_of_call) {
    const std::lock_guard guard(mutex);
    if (is_paused) return CL_SUCCESS;
    const char* name = names[static_cast<size_t>(id)];
    const bool is_event = plan.kind == OPENCL_FAULT_EVENT;
    if (is_event != (kind_of_call == OPENCL_FAULT_EVENT)) return CL_SUCCESS;
    if (plan.function != nullptr && std::string_view(plan.function) != name) return CL_SUCCESS;
    ++so_far.calls;
    counted.push_back(name);
    if (plan.at == 0 || so_far.calls < plan.at) return CL_SUCCESS;
    if (so_far.calls > plan.at && plan.kind != OPENCL_FAULT_LOST) return CL_SUCCESS;
    cl_int code = plan.code;
    if (code == 0 && plan.kind == OPENCL_FAULT_LOST) code = CL_DEVICE_NOT_AVAILABLE;
    if (code == 0) {
        const std::vector<cl_int> errors = errors_of(id);
        code = errors[plan.variation % errors.size()];
    }
    if (plan.kind == OPENCL_FAULT_LOST && is_release(id)) return code; // nothing that is to be answered
    if (so_far.failures++ == 0) {
        so_far.failed = name;
        so_far.code = code;
    }
    return code;
}

bool is_lost() {
    const std::lock_guard guard(mutex);
    return plan.kind == OPENCL_FAULT_LOST && !is_paused;
}

// An event that is complete with an error takes the place of the driver's.
void replace_event(cl_event* event, cl_int status) {
    cl_context context = nullptr;
    driver->clGetEventInfo(*event, CL_EVENT_CONTEXT, sizeof context, &context, nullptr);
    cl_event failed = driver->clCreateUserEvent(context, nullptr);
    driver->clSetUserEventStatus(failed, status);
    driver->clReleaseEvent(*event);
    *event = failed;
}

template <typename... A>
void handle_event(Id id, A... arguments) {
    if constexpr (sizeof...(A) > 0) {
        const auto last = std::get<sizeof...(A) - 1>(std::tuple(arguments...));
        if constexpr (std::is_same_v<std::remove_const_t<decltype(last)>, cl_event*>) {
            if (last == nullptr) return;
            ++living;
            if (const cl_int status = next_error(id, OPENCL_FAULT_EVENT)) replace_event(last, status);
        }
    }
}

void hide(cl_device_info what, size_t size, void* value) {
    const cl_bool no = CL_FALSE;
    if (hides_unified_memory && what == CL_DEVICE_HOST_UNIFIED_MEMORY && value != nullptr && size >= sizeof no)
        std::memcpy(value, &no, sizeof no);
}

template <auto member, Id id>
struct Hook;

template <typename R, typename... A, R (*cl_icd_dispatch::*member)(A...), Id id>
struct Hook<member, id> {
    static R CL_API_CALL call(A... arguments) {
        const cl_int error = next_error(id, OPENCL_FAULT_ONCE);
        if constexpr (std::is_same_v<R, cl_int>) {
            if (error != CL_SUCCESS && !is_release(id) && !(is_wait(id) && is_lost())) return error;
            const cl_int code = (driver->*member)(arguments...);
            if (code != CL_SUCCESS) return code;
            living += object_changes[static_cast<size_t>(id)];
            handle_event(id, arguments...);
            if constexpr (id == Id::clGetDeviceInfo) {
                const auto all = std::tuple(arguments...);
                hide(std::get<1>(all), std::get<2>(all), std::get<3>(all));
            }
            return error;
        } else { // creates something; the last argument is where its code goes
            const auto code = std::get<sizeof...(A) - 1>(std::tuple(arguments...));
            if (error != CL_SUCCESS) {
                if (code != nullptr) *code = error;
                return nullptr;
            }
            const R made = (driver->*member)(arguments...);
            if (made != nullptr) living += object_changes[static_cast<size_t>(id)];
            return made;
        }
    }
};

void arm(const opencl_fault_plan* wanted) {
    const std::lock_guard guard(mutex);
    plan = *wanted;
    so_far = {};
    counted.clear();
}

const char* function(uint64_t at) {
    const std::lock_guard guard(mutex);
    return at >= 1 && at <= counted.size() ? counted[at - 1] : nullptr;
}

uint32_t errors(const char* function) {
    const auto name = std::find(names.begin(), names.end(), std::string_view(function));
    return static_cast<uint32_t>(errors_of(static_cast<Id>(name - names.begin())).size());
}

void report(opencl_fault_report* out) {
    const std::lock_guard guard(mutex);
    *out = so_far;
}

void pause(int32_t paused) {
    const std::lock_guard guard(mutex);
    is_paused = paused != 0;
}

int64_t live() { return living; }
void hide_unified_memory(int32_t hidden) { hides_unified_memory = hidden != 0; }

} // namespace

#define EXPORT __attribute__((visibility("default")))
extern "C" {

EXPORT extern const opencl_faults opencl_faults_table;
const opencl_faults opencl_faults_table = {arm, report, function, errors, pause, live, hide_unified_memory};

EXPORT CL_API_ENTRY cl_int CL_API_CALL clGetLayerInfo(cl_layer_info param_name, size_t param_value_size,
                                                      void* param_value, size_t* param_value_size_ret) {
    constexpr std::string_view name = "winnow faults";
    const cl_layer_api_version version = CL_LAYER_API_VERSION_100;
    if (param_name != CL_LAYER_API_VERSION && param_name != CL_LAYER_NAME) return CL_INVALID_VALUE;
    const void* from = param_name == CL_LAYER_NAME ? static_cast<const void*>(name.data()) : &version;
    const size_t needed = param_name == CL_LAYER_NAME ? name.size() + 1 : sizeof version;
    if (param_value != nullptr && param_value_size < needed) return CL_INVALID_VALUE;
    if (param_value != nullptr) std::memcpy(param_value, from, needed);
    if (param_value_size_ret != nullptr) *param_value_size_ret = needed;
    return CL_SUCCESS;
}

EXPORT CL_API_ENTRY cl_int CL_API_CALL clInitLayer(cl_uint num_entries, const cl_icd_dispatch* target_dispatch,
                                                   cl_uint* num_entries_ret,
                                                   const cl_icd_dispatch** layer_dispatch_ret) {
    static cl_icd_dispatch dispatch{};
    constexpr cl_uint all = sizeof dispatch / sizeof(void*);
    driver = target_dispatch;
    std::memcpy(&dispatch, target_dispatch, std::min(num_entries, all) * sizeof(void*));
#define X(name, change) dispatch.name = Hook<&cl_icd_dispatch::name, Id::name>::call;
    FUNCTIONS(X)
#undef X
    *num_entries_ret = all;
    *layer_dispatch_ret = &dispatch;
    return CL_SUCCESS;
}
}
