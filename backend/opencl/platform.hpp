// The devices of all OpenCL platforms of this machine, how they are numbered, and how one is chosen. Only queries:
// nothing here creates a context.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/device.hpp"
#include "opencl/cl.hpp"
#include "winnow.h"

namespace winnow::opencl {

// One numbered device. Several cl_device_ids where a platform lists the same single-core CPU device several times
// (PoCL's "basic" devices, POCL_DEVICES="basic basic pthread"): each computes in the thread that calls it, so together
// they are one device for as many host threads, and they count once.
struct DeviceEntry {
    cl_platform_id platform = nullptr;
    std::vector<cl_device_id> devices; // at least one
    winnow_device_info info{};         // all but capabilities that need a context
    bool is_multiple() const { return devices.size() > 1; }
};

// In the order of their numbers: platforms as the ICD loader lists them; within one, single-core CPU devices last, so
// that the first device is one that uses the whole CPU by itself. A platform that fails is left out with a warning, so
// that a broken driver does not take the others along; where no other has a device, its failure is thrown. Only where
// none of the system's drivers offers a device, the libraries in WINNOW_DRIVER are opened, and theirs are listed; where
// these have none either, what is wrong with them is thrown.
std::vector<DeviceEntry> list_devices(const Log& log = [](int32_t, const std::string&) {});
using ListPlatform = std::function<std::vector<DeviceEntry>(cl_platform_id)>;
std::vector<DeviceEntry> gather_devices(std::span<const cl_platform_id> platforms, const ListPlatform& list,
                                        const Log& log);

// By number, "gpu", "cpu", "accelerator", or a part of the platform's, device's or vendor's name or what people call
// the driver ("pocl"); "" means WINNOW_DEVICE from the environment, else the first GPU, else the first device. With
// `host_threads`, a CPU device gives way to the multiple one of its platform, if there is one. Throws NOT_FOUND,
// listing what exists.
DeviceEntry select_device(const std::vector<DeviceEntry>& devices, const std::string& request, bool host_threads);

// The entry of one cl_device_id, for a host that brings its own.
DeviceEntry describe_device(cl_device_id device);

// A query of a fixed-size value, or of a string; `absent`, or "", where the device does not know it. Throws where the
// query itself fails: what a device can do must not depend on that.
template <typename T>
T device_value(cl_device_id device, cl_device_info what, T absent = T{}) {
    T value = absent;
    const cl_int code = clGetDeviceInfo(device, what, sizeof value, &value, nullptr);
    if (is_failed_query(code)) throw_cl_error(code, "clGetDeviceInfo");
    return code == CL_SUCCESS ? value : absent;
}
std::string device_text(cl_device_id device, cl_device_info what);
std::string platform_text(cl_platform_id platform, cl_platform_info what);

// Whether a list of names with spaces between, as of extensions, has one.
bool has_word(const std::string& list, const std::string& word);

// CL_DEVICE_UUID_KHR. Throws UNSUPPORTED where the driver does not tell it.
std::array<uint8_t, CL_UUID_SIZE_KHR> device_uuid(cl_device_id device);

// 300 for "OpenCL 3.0 ...".
int device_version(cl_device_id device);

} // namespace winnow::opencl
