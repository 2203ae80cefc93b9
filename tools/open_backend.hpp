// A backend while it is open, and contexts on it: what every program opens backends with.
#pragma once

#include <memory>
#include <stdexcept>
#include <string>

#include "winnow_loader.h"
#include "winnow_opencl.h"

namespace winnow::tools {

struct DestroyContext {
    int32_t(WINNOW_CALL* destroy)(winnow_context*) = nullptr;
    void operator()(winnow_context* context) const { destroy(context); }
};
using OwnedContext = std::unique_ptr<winnow_context, DestroyContext>;

class OpenBackend {
public:
    // `name` as winnow_library_open takes it. Throws std::runtime_error with the loader's message.
    explicit OpenBackend(const std::string& name) {
        char message[4096] = "";
        if (winnow_library_open(name.c_str(), nullptr, &library_, message, sizeof message) != WINNOW_OK)
            throw std::runtime_error(message);
    }
    ~OpenBackend() { winnow_library_close(&library_); }
    OpenBackend(const OpenBackend&) = delete;
    OpenBackend& operator=(const OpenBackend&) = delete;

    const winnow_api& api() const { return *library_.api; }
    // Throws std::runtime_error where the backend has none.
    const winnow_cache_api& caches() const {
        if (library_.caches == nullptr) throw std::runtime_error(std::string(path()) + " has no caches");
        return *library_.caches;
    }
    // NULL where the backend does not compute with OpenCL.
    const winnow_opencl_api* opencl() const {
        const void* table = nullptr;
        api().get_table(WINNOW_OPENCL_TABLE, WINNOW_OPENCL_VERSION, &table, nullptr, 0);
        return static_cast<const winnow_opencl_api*>(table);
    }
    const char* path() const { return library_.path; }

    // Throws std::runtime_error with the status and the backend's message.
    OwnedContext make_context(const winnow_context_desc& desc) const {
        winnow_context* context = nullptr;
        char message[4096] = "";
        const int32_t status = api().context_create(&desc, &context, message, sizeof message);
        if (status != WINNOW_OK) throw std::runtime_error(std::string(api().status_name(status)) + ": " + message);
        return OwnedContext(context, {api().context_destroy});
    }

private:
    winnow_library library_{};
};

} // namespace winnow::tools
