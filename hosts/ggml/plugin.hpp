// The Winnow backend under this ggml backend: loaded once, and a context of it for each ggml backend instance.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "cache_meaning.hpp"
#include "trace.hpp"
#include "winnow_loader.h"

namespace winnow::ggml {

// What a context computes: nothing, where it only answers questions about caches in place; these lie in the host's
// memory, virtual ones in the device's.
enum class Purpose { questions, in_place, virtual_caches };

// What a context did.
struct ContextFigures {
    std::string device;
    winnow_stats stats{};
    uint64_t waits = 0; // how often it was waited for, after it had launched something
};

// A Winnow context and the number of host threads it may use. Serialised by its owner.
class Context {
public:
    // Throws std::runtime_error with the reason.
    // `device` is as in winnow_context_desc.
    Context(const winnow_library& library, Purpose purpose, const std::string& device = "");
    ~Context();
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;

    const winnow_api& api() const { return *library_.api; }
    const winnow_cache_api& caches() const { return *library_.caches; } // of a backend that has some
    winnow_context* get() const { return context_; }
    const char* message() const { return api().context_message(context_); }
    winnow_device_info info() const;
    winnow_stats stats() const;
    ContextFigures figures() const;
    // Until all that was enqueued is complete; returns a status.
    int32_t finish();
    int threads() const { return threads_; }
    void set_threads(int threads) { threads_ = threads; }

private:
    const winnow_library& library_;
    std::unique_ptr<Track> kernels_; // in the trace, if there is one
    winnow_context* context_ = nullptr;
    std::atomic<int> threads_;
    uint64_t waits_ = 0;
    uint64_t launches_waited_for_ = 0;
};

// The loaded backend and what the registration needs to know of it. One for the process; never unloaded, as ggml never
// unloads this library.
class Plugin {
public:
    // Loads the backend named by WINNOW_BACKEND, else libwinnow_opencl.so beside this library; opens its device.
    // Throws std::runtime_error with the reason.
    Plugin();

    const winnow_library& library() const { return library_; }
    const winnow_api& api() const { return *library_.api; }
    const char* path() const { return library_.path; }
    // Of caches in place, and how a context is told of it.
    const winnow_device_info& device() const { return device_; }
    const std::string& device_in_place() const { return device_in_place_; }
    // Whether it cannot reach the host's memory, so that every call copies all that it is given.
    bool does_copy() const { return does_copy_; }
    // Why there is to be no cache in place; "" where it does not copy, or where the user has named it.
    const std::string& refusal_in_place() const { return refusal_; }

    // Whether the device would carry this out, and is to. May be called from any thread.
    bool supports(const winnow_sdpa_desc& desc) const;
    bool supports(const winnow_kv_append_desc& desc) const;
    // Throws std::runtime_error where there can be no cache like this.
    CacheMeaning meaning_of(const winnow_cache_desc& desc) const;

private:
    void open_device();
    bool take_device(const std::string& device); // whether it reaches the host's memory

    winnow_library library_{};
    std::unique_ptr<Context> probe_; // answers supports
    winnow_device_info device_{};
    std::string device_in_place_;
    bool does_copy_ = false;
    std::string refusal_;
};

} // namespace winnow::ggml
