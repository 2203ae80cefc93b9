// What the runtime finds in this library: two functions, and a factory that makes an execution provider for a session.
// It offers itself for the CPU, because tensors lie in the host's memory; which device computes is the option `device`.
#include <memory>

#include "provider.hpp"

namespace winnow::ort {

namespace {

OrtStatus* supported_devices(OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                             OrtEpDevice** made, size_t room, size_t* made_count) {
    *made_count = 0;
    for (size_t i = 0; i < count && room > 0; ++i) {
        if (api().HardwareDevice_Type(devices[i]) != OrtHardwareDeviceType_CPU) continue;
        OrtStatus* status = ep_api().CreateEpDevice(self, devices[i], nullptr, nullptr, made);
        if (!status) *made_count = 1;
        return status;
    }
    return nullptr;
}

class Factory : public OrtEpFactory {
public:
    Factory(const Runtime& runtime, const OrtLogger* logger) : OrtEpFactory{}, runtime_(runtime), log_(logger) {
        ort_version_supported = ORT_API_VERSION;
        GetName = [](const OrtEpFactory*) noexcept { return provider_name; };
        GetVendor = [](const OrtEpFactory*) noexcept { return "Winnow"; };
        GetVendorId = [](const OrtEpFactory*) noexcept { return uint32_t{0}; };
        GetVersion = [](const OrtEpFactory*) noexcept { return WINNOW_RELEASE; };
        GetSupportedDevices = [](OrtEpFactory* self, const OrtHardwareDevice* const* devices, size_t count,
                                 OrtEpDevice** made, size_t room, size_t* made_count) noexcept {
            const Entered entered(static_cast<Factory*>(self)->runtime_);
            return supported_devices(self, devices, count, made, room, made_count);
        };
        CreateEp = [](OrtEpFactory* self, const OrtHardwareDevice* const*, const OrtKeyValuePairs* const*, size_t,
                      const OrtSessionOptions* session, const OrtLogger* logger, OrtEp** made) noexcept {
            const Factory& factory = *static_cast<Factory*>(self);
            return guarded(factory.runtime_, [&] {
                *made = std::make_unique<Provider>(factory.runtime_, session, logger, factory.log_).release();
            });
        };
        ReleaseEp = [](OrtEpFactory* self, OrtEp* provider) noexcept {
            const Entered entered(static_cast<Factory*>(self)->runtime_);
            delete static_cast<Provider*>(provider);
        };
        // Tensors lie where the runtime's own allocator for the CPU puts them.
        CreateAllocator = [](OrtEpFactory*, const OrtMemoryInfo*, const OrtKeyValuePairs*,
                             OrtAllocator** made) noexcept -> OrtStatus* {
            *made = nullptr;
            return nullptr;
        };
        ReleaseAllocator = [](OrtEpFactory*, OrtAllocator*) noexcept {};
        CreateDataTransfer = [](OrtEpFactory*, OrtDataTransferImpl** made) noexcept -> OrtStatus* {
            *made = nullptr;
            return nullptr;
        };
        IsStreamAware = [](const OrtEpFactory*) noexcept { return false; };
        CreateSyncStreamForDevice = [](OrtEpFactory*, const OrtMemoryDevice*, const OrtKeyValuePairs*,
                                       OrtSyncStreamImpl** made) noexcept -> OrtStatus* {
            *made = nullptr;
            return nullptr;
        };
    }

private:
    const Runtime runtime_;
    const Log log_; // the process's
};

} // namespace

} // namespace winnow::ort

extern "C" {

__attribute__((visibility("default"))) OrtStatus* CreateEpFactories(const char*, const OrtApiBase* base,
                                                                    const OrtLogger* logger, OrtEpFactory** factories,
                                                                    size_t room, size_t* count) {
    *count = 0;
    winnow::ort::Runtime runtime;
    if (OrtStatus* status = winnow::ort::open_runtime(*base, runtime)) return status;
    return winnow::ort::guarded(runtime, [&] {
        if (room < 1) throw winnow::ort::Error("there is no room for a factory, expected room for one");
        factories[0] = std::make_unique<winnow::ort::Factory>(runtime, logger).release();
        *count = 1;
    });
}

__attribute__((visibility("default"))) OrtStatus* ReleaseEpFactory(OrtEpFactory* factory) {
    delete static_cast<winnow::ort::Factory*>(factory);
    return nullptr;
}
}
