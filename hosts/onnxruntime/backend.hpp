// The Winnow backend of a session, and its context.
#pragma once

#include "options.hpp"
#include "winnow_loader.h"

namespace winnow::ort {

class Backend {
public:
    // Throws with the backend's reason. The log has to outlive it.
    Backend(const Options& options, const Log& log);
    ~Backend();
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    const winnow_api& api() const { return *library_.api; }
    const winnow_cache_api& caches() const { return *library_.caches; }
    winnow_context* context() const { return context_; }
    const char* path() const { return library_.path; }
    winnow_device_info device() const;
    winnow_stats stats() const;
    // Throws the context's message unless the status is WINNOW_OK.
    void expect(int32_t status) const;

private:
    winnow_library library_{};
    winnow_context* context_ = nullptr;
};

} // namespace winnow::ort
