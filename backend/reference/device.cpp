// Host memory as buffers, a device without a queue, and the choice of the only device there is.
#include "reference/device.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <new>

#include "reference/view.hpp"

namespace winnow::reference {
namespace {

constexpr const char* device_name = "reference";

std::string lowered(std::string text) {
    std::transform(text.begin(), text.end(), text.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return text;
}

// winnow_context_desc.device, answered by a single device of type CPU. WINNOW_DEVICE is about devices of OpenCL.
void require_chosen(const DeviceRequest& request) {
    const std::string wanted = lowered(request.device);
    if (wanted.empty() || wanted == "0" || wanted == "cpu") return;
    const bool is_number = std::all_of(wanted.begin(), wanted.end(), [](unsigned char c) { return std::isdigit(c); });
    const bool names_us = std::string(device_name).find(wanted) != std::string::npos;
    if (wanted == "gpu" || is_number || !names_us)
        throw Error(WINNOW_ERROR_NOT_FOUND,
                    "device: no device \"" + wanted + "\"; the only one is 0, \"" + device_name + "\", of type cpu");
}

class CompletedEvent final : public Event {
public:
    void wait() override {}
};

} // namespace

HostBuffer::HostBuffer(uint64_t size) : owned_(new (std::nothrow) std::byte[size]()), data_(owned_.get()), size_(size) {
    if (!owned_) throw Error(WINNOW_ERROR_OUT_OF_MEMORY, "no host memory for " + std::to_string(size) + " bytes");
}

void HostBuffer::write(uint64_t offset, const void* data, uint64_t size) { std::memmove(data_ + offset, data, size); }

void HostBuffer::read(uint64_t offset, void* data, uint64_t size) { std::memmove(data, data_ + offset, size); }

winnow_device_info device_info() {
    winnow_device_info info{};
    info.struct_size = sizeof info;
    info.type = WINNOW_DEVICE_CPU;
    std::snprintf(info.name, sizeof info.name, "%s", device_name);
    std::snprintf(info.vendor, sizeof info.vendor, "Winnow");
    std::snprintf(info.platform, sizeof info.platform, "host");
    std::snprintf(info.driver_version, sizeof info.driver_version, "none");
    std::snprintf(info.kernel_shape, sizeof info.kernel_shape, "reference");
    info.memory_size = UINT64_MAX;
    info.max_allocation_size = UINT64_MAX;
    info.compute_units = 1;
    info.capabilities = WINNOW_CAPABILITY_UNIFIED_MEMORY | WINNOW_CAPABILITY_FP64;
    return info;
}

ReferenceDevice::ReferenceDevice(const DeviceRequest& request)
    : launched_(request.launched), launched_user_data_(request.launched_user_data) {
    if (!request.variants.empty())
        throw Error(WINNOW_ERROR_INVALID_ARGUMENT,
                    "variants: got \"" + request.variants + "\", but the reference has nothing to choose from");
    require_chosen(request);
}

void ReferenceDevice::info(winnow_device_info& out) const {
    const uint32_t struct_size = out.struct_size;
    out = device_info();
    out.struct_size = struct_size;
}

std::unique_ptr<Buffer> ReferenceDevice::allocate(uint64_t size, uint8_t filling) {
    auto buffer = std::make_unique<HostBuffer>(size);
    if (filling != 0) std::memset(buffer->data(), filling, size);
    return buffer;
}

std::unique_ptr<Buffer> ReferenceDevice::import_host(void* data, uint64_t size) {
    return std::make_unique<HostBuffer>(data, size);
}

std::unique_ptr<Event> ReferenceDevice::mark() { return std::make_unique<CompletedEvent>(); }

} // namespace winnow::reference

namespace winnow {

std::unique_ptr<Device> make_reference() { return std::make_unique<reference::ReferenceDevice>(DeviceRequest{}); }

} // namespace winnow
