// OpenCL drivers that are not installed on the system: WINNOW_DRIVER names their libraries, which are opened directly.
#pragma once

#include <string>
#include <vector>

#include "opencl/cl.hpp"

namespace winnow::opencl {

// The libraries that the environment names in WINNOW_DRIVER, with ':' between them.
std::vector<std::string> named_drivers();

// The platforms of a driver's library, which stays open until the process ends. The ICD loader does not list them, and
// hands on each call by the object that the call is about; so clCreateContext must not name the platform, which the
// loader would look for in its own list. Throws NOT_FOUND where the library cannot be opened or is no driver.
std::vector<cl_platform_id> open_driver(const std::string& library);

// Throws NOT_FOUND with the library's path and what is wrong with it.
[[noreturn]] void refuse_driver(const std::string& library, const std::string& reason);

// What a user without any device can do, for the end of a message.
std::string how_to_get_a_device();

} // namespace winnow::opencl
