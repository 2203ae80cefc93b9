// The OpenCL headers as this backend uses them: the C API and clhpp's RAII wrappers without exceptions, and check(),
// which turns a failing call into an Error with the call's name and the code's.
#pragma once

#define CL_TARGET_OPENCL_VERSION 300
#define CL_HPP_TARGET_OPENCL_VERSION 300
#define CL_HPP_MINIMUM_OPENCL_VERSION 110 // 120 does not compile with clhpp 3.0.2023
#include <CL/opencl.hpp>

#include <string>

namespace winnow::opencl {

const char* cl_error_name(cl_int code);

[[noreturn]] void throw_cl_error(cl_int code, const char* call, const std::string& detail = {});

// Whether a query failed, and not because the device or its version does not know it.
bool is_failed_query(cl_int code);

// For a query of an object of the host's: `text` says what it is not where the driver does not know it.
void check_host_object(cl_int code, const char* call, const std::string& text);

inline void check(cl_int code, const char* call) {
    if (code != CL_SUCCESS) throw_cl_error(code, call);
}

// CL_EVENT_COMMAND_EXECUTION_STATUS: below 0 where the command failed.
cl_int status_of(cl_event event);

} // namespace winnow::opencl
