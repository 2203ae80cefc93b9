// What loader.cpp calls: winnow_ggml_difference compares layouts, winnow_ggml_init loads Winnow and registers.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <string_view>

#include "backend.hpp"
#include "device.hpp"
#include "ggml_api.hpp"
#include "kv_config.hpp"
#include "layout_check.hpp"
#include "run_log.hpp"
#include "threads.hpp"
#include "virtual_buffer.hpp"

namespace winnow::ggml {

namespace {

const char* get_name(ggml_backend_reg_t) { return "Winnow"; }

size_t get_device_count(ggml_backend_reg_t) { return 1; }

ggml_backend_dev_t get_device(ggml_backend_reg_t, size_t index) {
    return index == 0 ? &registration()->device : nullptr;
}

// Writes at most size bytes of the text that an action returns, zero terminated; returns the length of the whole. 0
// where the action fails, and the reason is in the log.
template <typename Action>
size_t give_text(Action&& action, char* text, size_t size) {
    try {
        const std::string whole = action();
        if (text) std::snprintf(text, size, "%s", whole.c_str());
        return whole.size();
    } catch (const std::exception& error) {
        log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
        return 0;
    }
}

// Under the name "winnow_ggml_report": the report as JSON. It counts contexts in use as they were last seen for
// WINNOW_REPORT_EVERY. Writes at most size bytes, zero terminated, and returns the length of the whole text.
size_t write_report(char* text, size_t size) {
    return give_text([] { return registration()->report.json(); }, text, size);
}

// Under the name "winnow_ggml_reset_report": from now on the report counts from nothing, apart from caches that there
// are.
void reset_report() { registration()->report.reset(); }

// Under the name "winnow_ggml_caches": what the virtual caches hold that there are now, as a JSON array of objects as
// the report's. Not while a graph is computed. Likewise; 0 where it fails, and the reason is in the log.
size_t write_caches(char* text, size_t size) { return give_text(VirtualBuffer::living_caches, text, size); }

// Under the name "winnow_ggml_set_kv": the configuration of the caches that are made from now on, as WINNOW_KV; "" or
// NULL is in place. Returns 0, or, and nothing has changed, 1 with the reason in message.
int set_kv(const char* config, char* message, size_t size) {
    try {
        set_kv_config(registration()->plugin, config ? config : "");
        return 0;
    } catch (const std::exception& error) {
        if (message && size > 0) std::snprintf(message, size, "%s", error.what());
        return 1;
    }
}

void* get_proc_address(ggml_backend_reg_t, const char* name) {
    const std::string_view wanted = name;
    if (wanted == "ggml_backend_set_n_threads") return reinterpret_cast<void*>(set_n_threads);
    if (wanted == "ggml_backend_set_abort_callback") return reinterpret_cast<void*>(set_abort_callback);
    if (wanted == "winnow_ggml_report") return reinterpret_cast<void*>(write_report);
    if (wanted == "winnow_ggml_reset_report") return reinterpret_cast<void*>(reset_report);
    if (wanted == "winnow_ggml_caches") return reinterpret_cast<void*>(write_caches);
    if (wanted == "winnow_ggml_set_kv") return reinterpret_cast<void*>(set_kv);
    return nullptr;
}

// What is not named, ggml does without.
ggml_backend_reg reg = [] {
    ggml_backend_reg made{};
    made.api_version = GGML_BACKEND_API_VERSION;
    made.iface.get_name = get_name;
    made.iface.get_device_count = get_device_count;
    made.iface.get_device = get_device;
    made.iface.get_proc_address = get_proc_address;
    return made;
}();

std::string difference(const void* caller) {
    if (registration()) return ""; // it is in use
    const std::string missing = find_ggml(caller);
    return missing.empty() ? layout_difference() : "there is no " + missing;
}

ggml_backend_reg_t initialise() {
    if (registration()) return &reg; // loaded twice: ggml recognises the same registration
    prepare_threads();
    auto made = std::make_unique<Registration>();
    read_kv_config(made->plugin);
    make_device(*made, &reg);
    const winnow_device_info& device = made->plugin.device();
    log_line(GGML_LOG_LEVEL_INFO, "%s backend %s on %s (%s, driver %s), %s kernels", made->plugin.api().backend_name,
             made->plugin.api().backend_version, device.name, device.platform, device.driver_version,
             device.kernel_shape);
    note_run("loaded", device.name);
    set_registration(made.release()); // for the life of the process
    return &reg;
}

} // namespace

} // namespace winnow::ggml

// What is different in the process's ggml from the headers that this was compiled with, in words; "" if it fits.
// `caller` is an address inside the library of the host that wants a backend.
extern "C" __attribute__((visibility("default"))) const char* winnow_ggml_difference(const void* caller) {
    static std::string text;
    try {
        text = winnow::ggml::difference(caller);
    } catch (const std::exception& error) {
        text = error.what();
    }
    return text.c_str();
}

// To be called once there was no difference. NULL, with a line in the log, if there can be no backend.
extern "C" __attribute__((visibility("default"))) ggml_backend_reg_t winnow_ggml_init() {
    try {
        return winnow::ggml::initialise();
    } catch (const std::exception& error) {
        winnow::ggml::log_line(GGML_LOG_LEVEL_ERROR, "%s", error.what());
        return nullptr;
    }
}
