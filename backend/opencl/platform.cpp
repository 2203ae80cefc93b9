// Enumeration and choice of OpenCL devices.
#include "opencl/platform.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iterator>
#include <mutex>
#include <string_view>

#include "device/device.hpp"
#include "opencl/driver_library.hpp"
#include "opencl/pocl_folder.hpp"
#include "opencl/quirks.hpp"

namespace winnow::opencl {
namespace {

constexpr cl_int platform_not_found = -1001; // CL_PLATFORM_NOT_FOUND_KHR: the ICD loader found no driver

template <size_t size>
void copy_text(char (&to)[size], const std::string& from) {
    std::snprintf(to, size, "%s", from.c_str());
}

std::string trimmed(std::string text) {
    const auto is_blank = [](unsigned char c) { return std::isspace(c) != 0 || c == 0; };
    while (!text.empty() && is_blank(text.back())) text.pop_back();
    size_t first = 0;
    while (first < text.size() && is_blank(text[first])) ++first;
    return text.substr(first);
}

std::string lowered(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

template <typename Query, typename Object, typename Name>
std::string queried_text(Query query, const char* call, Object object, Name what) {
    size_t size = 0;
    std::string text;
    cl_int code = query(object, what, 0, nullptr, &size);
    if (code == CL_SUCCESS) {
        text.resize(size);
        code = query(object, what, size, text.data(), nullptr);
    }
    if (is_failed_query(code)) throw_cl_error(code, call);
    return code == CL_SUCCESS ? trimmed(text) : std::string();
}

uint32_t type_of(cl_device_id device) {
    const auto type = device_value<cl_device_type>(device, CL_DEVICE_TYPE);
    if (type & CL_DEVICE_TYPE_GPU) return WINNOW_DEVICE_GPU;
    if (type & CL_DEVICE_TYPE_CPU) return WINNOW_DEVICE_CPU;
    return WINNOW_DEVICE_ACCELERATOR;
}

const char* type_text(uint32_t type) {
    return type == WINNOW_DEVICE_GPU ? "gpu" : type == WINNOW_DEVICE_CPU ? "cpu" : "accelerator";
}

// Device-scope acquire and release, as atomics and as fences: optional since OpenCL 3.0, a part of 2.x, absent in 1.x.
bool has_device_scope_atomics(cl_device_id device) {
    const int version = device_version(device);
    if (version < 300) return version >= 200;
    const auto needed = CL_DEVICE_ATOMIC_ORDER_ACQ_REL | CL_DEVICE_ATOMIC_SCOPE_DEVICE;
    const auto atomics = device_value<cl_device_atomic_capabilities>(device, CL_DEVICE_ATOMIC_MEMORY_CAPABILITIES);
    const auto fences = device_value<cl_device_atomic_capabilities>(device, CL_DEVICE_ATOMIC_FENCE_CAPABILITIES);
    return (atomics & needed) == needed && (fences & needed) == needed;
}

// A part of OpenCL since 2.1, where a device may have none; before, an extension.
bool has_subgroups(cl_device_id device, const std::string& extensions) {
    if (has_word(extensions, "cl_khr_subgroups")) return true;
    return device_version(device) >= 210 && device_value<cl_uint>(device, CL_DEVICE_MAX_NUM_SUB_GROUPS) > 0;
}

// CL_DEVICE_HOST_UNIFIED_MEMORY is deprecated, and still the only query there is; a probe confirms it when a context is
// made.
bool says_unified_memory(cl_device_id device) {
    return device_value<cl_bool>(device, CL_DEVICE_HOST_UNIFIED_MEMORY) == CL_TRUE;
}

bool is_single_core_cpu(const DeviceEntry& entry) {
    return entry.info.type == WINNOW_DEVICE_CPU &&
           device_value<cl_uint>(entry.devices.front(), CL_DEVICE_MAX_COMPUTE_UNITS) == 1;
}

std::vector<cl_device_id> devices_of(cl_platform_id platform) {
    cl_uint count = 0;
    const cl_int code = clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &count);
    if (code == CL_DEVICE_NOT_FOUND) return {};
    check(code, "clGetDeviceIDs");
    if (count == 0) return {};
    std::vector<cl_device_id> devices(count);
    check(clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, count, devices.data(), nullptr), "clGetDeviceIDs");
    return devices;
}

// PoCL has no devices where it cannot write its folder.
std::vector<cl_device_id> devices_of_pocl(cl_platform_id platform, const Log& log) {
    const std::string trouble = make_pocl_folder_usable(log);
    std::vector<cl_device_id> devices = devices_of(platform);
    if (devices.empty() && !trouble.empty())
        throw Error(WINNOW_ERROR_NOT_FOUND, "PoCL is there and offers no device: " + trouble);
    return devices;
}

std::vector<DeviceEntry> list_platform(cl_platform_id platform, const Log& log) {
    std::vector<DeviceEntry> entries;
    const bool is_pocl = platform_text(platform, CL_PLATFORM_NAME) == pocl_platform;
    for (cl_device_id device : is_pocl ? devices_of_pocl(platform, log) : devices_of(platform)) {
        if (device_value<cl_bool>(device, CL_DEVICE_AVAILABLE) != CL_TRUE ||
            device_value<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE) != CL_TRUE)
            continue;
        DeviceEntry entry = describe_device(device);
        const auto same = std::find_if(entries.begin(), entries.end(), [&](const DeviceEntry& other) {
            return is_single_core_cpu(entry) && is_single_core_cpu(other) &&
                   std::strcmp(entry.info.name, other.info.name) == 0;
        });
        if (same != entries.end()) {
            same->devices.push_back(device);
            same->info.compute_units = static_cast<uint32_t>(same->devices.size());
        } else {
            entries.push_back(std::move(entry));
        }
    }
    std::stable_partition(entries.begin(), entries.end(), [](const DeviceEntry& e) { return !is_single_core_cpu(e); });
    return entries;
}

std::vector<cl_platform_id> system_platforms() {
    cl_uint count = 0;
    const cl_int code = clGetPlatformIDs(0, nullptr, &count);
    if (code == platform_not_found) return {};
    check(code, "clGetPlatformIDs");
    if (count == 0) return {};
    std::vector<cl_platform_id> platforms(count);
    check(clGetPlatformIDs(count, platforms.data(), nullptr), "clGetPlatformIDs");
    return platforms;
}

// Adds to `trouble`, which the system's drivers have, what is wrong with each library; thrown where none has a device.
std::vector<DeviceEntry> devices_of_drivers(const std::vector<std::string>& libraries, std::string trouble,
                                            const ListPlatform& list, const Log& log) {
    std::vector<DeviceEntry> entries;
    for (const std::string& library : libraries) {
        try {
            std::vector<DeviceEntry> found = gather_devices(open_driver(library), list, log);
            if (found.empty()) refuse_driver(library, "offers no device");
            std::move(found.begin(), found.end(), std::back_inserter(entries));
            std::string said = trouble;
            log(WINNOW_LOG_INFO, said.append("; \"").append(library).append("\" (of WINNOW_DRIVER) is used"));
        } catch (const Error& error) {
            log(WINNOW_LOG_WARNING, error.what());
            trouble += std::string("; ") + error.what();
        }
    }
    if (entries.empty()) throw Error(WINNOW_ERROR_NOT_FOUND, trouble + "; " + how_to_get_a_device());
    return entries;
}

// What people call drivers whose platforms have another name.
struct Alias {
    std::string_view word, platform;
};
constexpr std::array<Alias, 4> aliases{{{"pocl", "portable computing language"},
                                        {"rocm", "amd accelerated parallel processing"},
                                        {"radeon", "amd accelerated parallel processing"},
                                        {"mesa", "rusticl"}}};

// The first device whose platform, else whose name, else whose vendor has the word. PoCL's devices are named after the
// processor, so that who says "intel" or "amd" means that vendor's driver first.
std::vector<DeviceEntry>::const_iterator find_named(const std::vector<DeviceEntry>& devices, const std::string& word) {
    const auto has = [](const char* text, std::string_view part) {
        return lowered(text).find(part) != std::string::npos;
    };
    const auto* const alias =
        std::find_if(aliases.begin(), aliases.end(), [&](const Alias& each) { return each.word == word; });
    const std::string_view platform = alias != aliases.end() ? alias->platform : word;
    auto found = std::find_if(devices.begin(), devices.end(),
                              [&](const DeviceEntry& each) { return has(each.info.platform, platform); });
    for (const auto text : {&winnow_device_info::name, &winnow_device_info::vendor})
        if (found == devices.end())
            found = std::find_if(devices.begin(), devices.end(),
                                 [&](const DeviceEntry& each) { return has(each.info.*text, word); });
    return found;
}

std::string listed(const std::vector<DeviceEntry>& devices) {
    if (devices.empty()) return "no OpenCL driver on this machine offers a device; " + how_to_get_a_device();
    std::string text = "there are:";
    for (size_t i = 0; i < devices.size(); ++i) {
        const winnow_device_info& info = devices[i].info;
        text += (i == 0 ? " " : "; ") + std::to_string(i) + " = \"" + info.name + "\" (" + type_text(info.type) +
                ", platform \"" + info.platform + "\")";
    }
    return text;
}

} // namespace

bool has_word(const std::string& list, const std::string& word) {
    return (" " + list + " ").find(" " + word + " ") != std::string::npos;
}

std::string device_text(cl_device_id device, cl_device_info what) {
    return queried_text(clGetDeviceInfo, "clGetDeviceInfo", device, what);
}

std::string platform_text(cl_platform_id platform, cl_platform_info what) {
    return queried_text(clGetPlatformInfo, "clGetPlatformInfo", platform, what);
}

std::array<uint8_t, CL_UUID_SIZE_KHR> device_uuid(cl_device_id device) {
    if (!has_word(device_text(device, CL_DEVICE_EXTENSIONS), "cl_khr_device_uuid"))
        throw Error(WINNOW_ERROR_UNSUPPORTED,
                    "the driver does not tell the device's UUID: it has no cl_khr_device_uuid");
    return device_value<std::array<uint8_t, CL_UUID_SIZE_KHR>>(device, CL_DEVICE_UUID_KHR);
}

int device_version(cl_device_id device) {
    int major = 1;
    int minor = 0;
    std::sscanf(device_text(device, CL_DEVICE_VERSION).c_str(), "OpenCL %d.%d", &major, &minor);
    return major * 100 + minor * 10;
}

DeviceEntry describe_device(cl_device_id device) {
    DeviceEntry entry;
    entry.platform = device_value<cl_platform_id>(device, CL_DEVICE_PLATFORM);
    entry.devices = {device};
    winnow_device_info& info = entry.info;
    info.type = type_of(device);
    copy_text(info.name, device_text(device, CL_DEVICE_NAME));
    copy_text(info.vendor, device_text(device, CL_DEVICE_VENDOR));
    copy_text(info.platform, platform_text(entry.platform, CL_PLATFORM_NAME));
    copy_text(info.driver_version, device_text(device, CL_DRIVER_VERSION));
    info.memory_size = device_value<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
    info.max_allocation_size = device_value<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
    info.compute_units = device_value<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);

    const std::string extensions = device_text(device, CL_DEVICE_EXTENSIONS);
    if (says_unified_memory(device)) info.capabilities |= WINNOW_CAPABILITY_UNIFIED_MEMORY;
    if (has_device_scope_atomics(device)) info.capabilities |= WINNOW_CAPABILITY_SINGLE_LAUNCH;
    if (has_subgroups(device, extensions)) info.capabilities |= WINNOW_CAPABILITY_SUBGROUPS;
    if (has_word(extensions, "cl_khr_fp16")) info.capabilities |= WINNOW_CAPABILITY_FP16;
    if (has_word(extensions, "cl_khr_fp64") ||
        device_value<cl_device_fp_config>(device, CL_DEVICE_DOUBLE_FP_CONFIG) != 0)
        info.capabilities |= WINNOW_CAPABILITY_FP64;
    return entry;
}

std::vector<DeviceEntry> gather_devices(std::span<const cl_platform_id> platforms, const ListPlatform& list,
                                        const Log& log) {
    std::vector<DeviceEntry> entries;
    std::exception_ptr failure;
    for (size_t i = 0; i < platforms.size(); ++i) {
        try {
            for (DeviceEntry& entry : list(platforms[i])) entries.push_back(std::move(entry));
        } catch (const Error& error) {
            if (!failure) failure = std::current_exception();
            log(WINNOW_LOG_WARNING, "OpenCL platform " + std::to_string(i) + " of " + std::to_string(platforms.size()) +
                                        " is left out: " + error.what());
        }
    }
    if (entries.empty() && failure) std::rethrow_exception(failure);
    return entries;
}

std::vector<DeviceEntry> list_devices(const Log& log) {
    // PoCL 3.1 tells whoever asks while another thread makes its devices that there are none.
    static std::mutex one_at_a_time;
    const std::lock_guard lock(one_at_a_time);
    const ListPlatform list = [&](cl_platform_id platform) { return list_platform(platform, log); };
    const std::vector<std::string> named = named_drivers();
    std::string trouble = "no driver of the system offers a device";
    try {
        std::vector<DeviceEntry> entries = gather_devices(system_platforms(), list, log);
        if (!entries.empty() || named.empty()) return entries;
    } catch (const Error& error) {
        if (named.empty()) throw;
        trouble = error.what();
    }
    return devices_of_drivers(named, trouble, list, log);
}

DeviceEntry select_device(const std::vector<DeviceEntry>& devices, const std::string& request, bool host_threads) {
    std::string wish = trimmed(request);
    std::string origin = "device";
    if (wish.empty()) {
        const char* variable = std::getenv("WINNOW_DEVICE");
        if (variable != nullptr) wish = trimmed(variable);
        origin = "WINNOW_DEVICE";
    }
    wish = lowered(wish);

    const auto find = [&](const auto& condition) { return std::find_if(devices.begin(), devices.end(), condition); };
    const auto is_type = [](uint32_t type) { return [type](const DeviceEntry& e) { return e.info.type == type; }; };
    auto chosen = devices.end();
    const bool is_number =
        !wish.empty() && std::all_of(wish.begin(), wish.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (wish.empty()) {
        chosen = find(is_type(WINNOW_DEVICE_GPU));
        if (chosen == devices.end()) chosen = devices.begin();
    } else if (is_number) {
        if (wish.size() < 9 && std::stoul(wish) < devices.size()) chosen = devices.begin() + std::stol(wish);
    } else if (wish == "gpu") {
        chosen = find(is_type(WINNOW_DEVICE_GPU));
    } else if (wish == "cpu") {
        chosen = find(is_type(WINNOW_DEVICE_CPU));
    } else if (wish == "accelerator") {
        chosen = find(is_type(WINNOW_DEVICE_ACCELERATOR));
    } else {
        chosen = find_named(devices, wish);
    }
    if (chosen == devices.end()) {
        throw Error(WINNOW_ERROR_NOT_FOUND,
                    (wish.empty() ? "no device" : origin + ": no device matches \"" + wish + "\"") + "; " +
                        listed(devices));
    }
    if (host_threads && chosen->info.type == WINNOW_DEVICE_CPU && !chosen->is_multiple()) {
        const auto multiple =
            find([&](const DeviceEntry& e) { return e.platform == chosen->platform && e.is_multiple(); });
        if (multiple != devices.end()) chosen = multiple;
    }
    return *chosen;
}

} // namespace winnow::opencl
