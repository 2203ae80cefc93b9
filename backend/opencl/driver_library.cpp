// Opens a driver as an ICD loader does (cl_khr_icd), and lists its platforms.
#include "opencl/driver_library.hpp"

#include <CL/cl_icd.h>
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <sstream>

#include "device/device.hpp"

namespace winnow::opencl {
namespace {

// The first entry of the dispatch table of a platform that wants data from the loader (cl_khr_icd 2.0). A loader that
// knows this version reads that data, and nobody has set it here.
constexpr auto managed_by_loader = static_cast<uintptr_t>(0x4F50454E434C3331); // CL_ICD2_TAG_KHR

struct Platform { // as every ICD loader sees it
    const cl_icd_dispatch* dispatch;
};

template <typename Function>
Function symbol(void* library, const char* name) {
    return reinterpret_cast<Function>(::dlsym(library, name));
}

clIcdGetPlatformIDsKHR_fn find_entry(void* library) {
    constexpr const char* name = "clIcdGetPlatformIDsKHR";
    using Find = void*(CL_API_CALL*)(const char*);
    const auto find = symbol<Find>(library, "clGetExtensionFunctionAddress");
    void* const entry = find != nullptr ? find(name) : nullptr;
    return entry != nullptr ? reinterpret_cast<clIcdGetPlatformIDsKHR_fn>(entry)
                            : symbol<clIcdGetPlatformIDsKHR_fn>(library, name);
}

} // namespace

std::vector<std::string> named_drivers() {
    std::vector<std::string> libraries;
    const char* const variable = std::getenv("WINNOW_DRIVER");
    std::istringstream list(variable != nullptr ? variable : "");
    for (std::string library; std::getline(list, library, ':');)
        if (!library.empty()) libraries.push_back(library);
    return libraries;
}

std::vector<cl_platform_id> open_driver(const std::string& library) {
    void* const handle = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        const char* const reason = ::dlerror();
        refuse_driver(library, std::string("cannot be opened: ") + (reason != nullptr ? reason : "no reason is given"));
    }
    const clIcdGetPlatformIDsKHR_fn list = find_entry(handle);
    if (list == nullptr) refuse_driver(library, "is no OpenCL driver: it has no clIcdGetPlatformIDsKHR");
    cl_uint count = 0;
    if (list(0, nullptr, &count) != CL_SUCCESS || count == 0)
        refuse_driver(library, "is an OpenCL driver without a platform");
    std::vector<cl_platform_id> platforms(count);
    check(list(count, platforms.data(), nullptr), "clIcdGetPlatformIDsKHR");
    for (const cl_platform_id platform : platforms) {
        const auto* const dispatch = reinterpret_cast<const Platform*>(platform)->dispatch;
        if (reinterpret_cast<uintptr_t>(dispatch->clGetPlatformIDs) == managed_by_loader)
            refuse_driver(library, "has to be opened by the ICD loader (cl_khr_icd 2.0): write its path into a file "
                                   "/etc/OpenCL/vendors/<name>.icd");
    }
    return platforms;
}

void refuse_driver(const std::string& library, const std::string& reason) {
    throw Error(WINNOW_ERROR_NOT_FOUND, "\"" + library + "\" (of WINNOW_DRIVER) " + reason);
}

std::string how_to_get_a_device() {
    return "install an OpenCL driver: the one of the GPU's vendor, or for the processor `apt install pocl-opencl-icd`; "
           "without root `pip install winnowkv_pocl-<...>.whl` (glibc 2.36 or newer; ci/driver_wheel makes it) or `pip "
           "install intel-opencl-rt intel-cmplr-lib-rt`, which the command `winnow` and Python find, and other "
           "programs by WINNOW_DRIVER=<path of the driver's library>";
}

} // namespace winnow::opencl
