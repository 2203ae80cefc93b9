// Host memory as buffers, a device without a queue, and the choice of the only device there is.
#include "reference/device.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <new>

#include "device/clock.hpp"
#include "reference/hadamard.hpp"
#include "reference/kv_append.hpp"
#include "reference/kv_dequantize.hpp"
#include "reference/kv_requantize.hpp"
#include "reference/page_pick.hpp"
#include "reference/page_sign.hpp"
#include "reference/sdpa.hpp"
#include "reference/slot_accumulate.hpp"
#include "reference/slot_append.hpp"
#include "reference/slot_compact.hpp"
#include "reference/slot_copy.hpp"
#include "reference/slot_edit.hpp"
#include "reference/slot_evict.hpp"
#include "reference/slot_scores.hpp"
#include "reference/slot_zero.hpp"
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

template <typename Args>
void ReferenceDevice::run(const char* name, void (*operation)(const Args&), const Args& args) {
    const uint64_t begin_ns = launched_ != nullptr ? monotonic_ns() : 0;
    operation(args);
    ++launches_;
    if (launched_ == nullptr) return;
    const winnow_launch launch{sizeof launch, 0, name, begin_ns, monotonic_ns(), 0};
    launched_(launched_user_data_, &launch);
}

void ReferenceDevice::stats(winnow_stats& out) const { out.kernel_launches = launches_; }

std::unique_ptr<Buffer> ReferenceDevice::allocate(uint64_t size, uint8_t filling) {
    auto buffer = std::make_unique<HostBuffer>(size);
    if (filling != 0) std::memset(buffer->data(), filling, size);
    return buffer;
}

std::unique_ptr<Buffer> ReferenceDevice::import_host(void* data, uint64_t size) {
    return std::make_unique<HostBuffer>(data, size);
}

std::string ReferenceDevice::validate(const Sdpa& args) const { return validate_sdpa(args); }

std::string ReferenceDevice::validate(const KvAppend& args) const { return validate_kv_append(args); }

std::unique_ptr<Event> ReferenceDevice::launch(const Sdpa& args, bool want_event) {
    validate_sdpa(args);
    run("sdpa", sdpa, args);
    return completed(want_event);
}

std::unique_ptr<Event> ReferenceDevice::launch(const KvAppend& args, bool want_event) {
    validate_kv_append(args);
    run("kv_append", kv_append, args);
    return completed(want_event);
}

std::string ReferenceDevice::validate(const KvRequantize& args) const { return validate_kv_requantize(args); }

std::unique_ptr<Event> ReferenceDevice::launch(const KvRequantize& args, bool want_event) {
    validate_kv_requantize(args);
    run("kv_requantize", kv_requantize, args);
    return completed(want_event);
}

std::string ReferenceDevice::validate(const KvDequantize& args) const { return validate_kv_dequantize(args); }

std::unique_ptr<Event> ReferenceDevice::launch(const KvDequantize& args, bool want_event) {
    validate_kv_dequantize(args);
    run("kv_dequantize", kv_dequantize, args);
    return completed(want_event);
}

std::string ReferenceDevice::validate(const Hadamard& args) const { return validate_hadamard(args); }

std::unique_ptr<Event> ReferenceDevice::launch(const Hadamard& args, bool want_event) {
    validate_hadamard(args);
    run("hadamard", hadamard, args);
    return completed(want_event);
}

int64_t ReferenceDevice::carried_floats(int64_t v_head_size) const { return carried_floats_of(v_head_size); }

void ReferenceDevice::launch(const SlotAppend& args) { run("slot_append", slot_append, args); }

void ReferenceDevice::launch(const SlotAccumulate& args) { run("slot_accumulate", slot_accumulate, args); }

void ReferenceDevice::launch(const SlotScores& args) { run("slot_scores", slot_scores, args); }

void ReferenceDevice::launch(const SlotEvict& args) { run("slot_evict", slot_evict, args); }

void ReferenceDevice::launch(const SlotEdit& args) { run("slot_edit", slot_edit, args); }

void ReferenceDevice::launch(const SlotCompact& args) { run("slot_compact", slot_compact, args); }

void ReferenceDevice::launch(const SlotCopy& args) { run("slot_copy", slot_copy, args); }

void ReferenceDevice::launch(const SlotZero& args) { run("slot_zero", slot_zero, args); }

void ReferenceDevice::launch(const PageSign& args) { run("page_sign", page_sign, args); }

void ReferenceDevice::launch(const PagePick& args) { run("page_pick", page_pick, args); }

std::unique_ptr<Event> ReferenceDevice::mark() { return std::make_unique<CompletedEvent>(); }

std::unique_ptr<Event> ReferenceDevice::completed(bool want_event) {
    return want_event ? std::make_unique<CompletedEvent>() : nullptr;
}

} // namespace winnow::reference
