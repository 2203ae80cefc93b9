// Names of OpenCL's error codes, and the one place where they become statuses of winnow.h.
#include "opencl/cl.hpp"

#include "device/device.hpp"

namespace winnow::opencl {

const char* cl_error_name(cl_int code) {
#define NAME(code)                                                                                                     \
    case code: return #code
    switch (code) {
        NAME(CL_SUCCESS);
        NAME(CL_DEVICE_NOT_FOUND);
        NAME(CL_DEVICE_NOT_AVAILABLE);
        NAME(CL_COMPILER_NOT_AVAILABLE);
        NAME(CL_MEM_OBJECT_ALLOCATION_FAILURE);
        NAME(CL_OUT_OF_RESOURCES);
        NAME(CL_OUT_OF_HOST_MEMORY);
        NAME(CL_MEM_COPY_OVERLAP);
        NAME(CL_BUILD_PROGRAM_FAILURE);
        NAME(CL_MAP_FAILURE);
        NAME(CL_MISALIGNED_SUB_BUFFER_OFFSET);
        NAME(CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST);
        NAME(CL_INVALID_VALUE);
        NAME(CL_INVALID_DEVICE_TYPE);
        NAME(CL_INVALID_PLATFORM);
        NAME(CL_INVALID_DEVICE);
        NAME(CL_INVALID_CONTEXT);
        NAME(CL_INVALID_QUEUE_PROPERTIES);
        NAME(CL_INVALID_COMMAND_QUEUE);
        NAME(CL_INVALID_HOST_PTR);
        NAME(CL_INVALID_MEM_OBJECT);
        NAME(CL_INVALID_BINARY);
        NAME(CL_INVALID_BUILD_OPTIONS);
        NAME(CL_INVALID_PROGRAM);
        NAME(CL_INVALID_PROGRAM_EXECUTABLE);
        NAME(CL_INVALID_KERNEL_NAME);
        NAME(CL_INVALID_KERNEL);
        NAME(CL_INVALID_ARG_INDEX);
        NAME(CL_INVALID_ARG_VALUE);
        NAME(CL_INVALID_ARG_SIZE);
        NAME(CL_INVALID_KERNEL_ARGS);
        NAME(CL_INVALID_WORK_DIMENSION);
        NAME(CL_INVALID_WORK_GROUP_SIZE);
        NAME(CL_INVALID_WORK_ITEM_SIZE);
        NAME(CL_INVALID_GLOBAL_OFFSET);
        NAME(CL_INVALID_EVENT_WAIT_LIST);
        NAME(CL_INVALID_EVENT);
        NAME(CL_INVALID_OPERATION);
        NAME(CL_INVALID_BUFFER_SIZE);
        NAME(CL_INVALID_GLOBAL_WORK_SIZE);
        NAME(CL_INVALID_PROPERTY);
    case -1001: return "CL_PLATFORM_NOT_FOUND_KHR"; // CL/cl_ext.h
    default: return "an unknown code";
    }
#undef NAME
}

void check_host_object(cl_int code, const char* call, const std::string& text) {
    if (code == CL_SUCCESS) return;
    if (code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY || code == CL_DEVICE_NOT_AVAILABLE)
        throw_cl_error(code, call);
    throw Error(WINNOW_ERROR_INVALID_ARGUMENT, text + ": the driver says " + cl_error_name(code));
}

bool is_failed_query(cl_int code) {
    return code == CL_OUT_OF_RESOURCES || code == CL_OUT_OF_HOST_MEMORY || code == CL_DEVICE_NOT_AVAILABLE ||
           code == CL_INVALID_DEVICE || code == CL_INVALID_PLATFORM;
}

cl_int status_of(cl_event event) {
    cl_int status = CL_QUEUED;
    check(clGetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status, nullptr), "clGetEventInfo");
    return status;
}

void throw_cl_error(cl_int code, const char* call, const std::string& detail) {
    const bool memory = code == CL_MEM_OBJECT_ALLOCATION_FAILURE || code == CL_OUT_OF_HOST_MEMORY ||
                        code == CL_INVALID_BUFFER_SIZE || code == CL_OUT_OF_RESOURCES;
    std::string text = std::string(call) + " failed with " + cl_error_name(code) + " (" + std::to_string(code) + ")";
    if (!detail.empty()) text += ": " + detail;
    throw Error(memory ? WINNOW_ERROR_OUT_OF_MEMORY : WINNOW_ERROR_DEVICE, text);
}

} // namespace winnow::opencl
