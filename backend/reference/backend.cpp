// What makes a shared object of this core and these files "the reference backend".
#include "reference/device.hpp"

namespace winnow::backend {

const char* const name = "reference";
const bool is_opencl = false;

std::vector<winnow_device_info> enumerate() { return {reference::device_info()}; }

std::unique_ptr<Device> create(const DeviceRequest& request) {
    return std::make_unique<reference::ReferenceDevice>(request);
}

} // namespace winnow::backend
