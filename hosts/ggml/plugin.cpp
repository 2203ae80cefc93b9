// Loading the Winnow backend and making contexts of it.
#include "plugin.hpp"

#include <cstdlib>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "ggml_api.hpp"
#include "threads.hpp"
#include "winnow_loader.h"

namespace winnow::ggml {

namespace {

void forward_log(void*, int32_t level, const char* text) {
    const enum ggml_log_level ggml_level = level <= WINNOW_LOG_ERROR     ? GGML_LOG_LEVEL_ERROR
                                           : level == WINNOW_LOG_WARNING ? GGML_LOG_LEVEL_WARN
                                           : level == WINNOW_LOG_INFO    ? GGML_LOG_LEVEL_INFO
                                                                         : GGML_LOG_LEVEL_DEBUG;
    log_line(ggml_level, "%s", text);
}

std::mutex probe_mutex;

// A cache in place lies in the host's memory, so a GPU that cannot reach it is a poor default where there is a CPU
// device: it would copy the cache at each call. NULL leaves the choice to WINNOW_DEVICE and to Winnow.
const char* device_in_place(const winnow_api& api) {
    const char* chosen = std::getenv("WINNOW_DEVICE");
    uint32_t count = 0;
    if ((chosen && *chosen) || api.device_count(&count, nullptr, 0) != WINNOW_OK) return nullptr;
    std::optional<bool> copies; // the first GPU, which Winnow would take
    bool has_cpu = false;
    for (uint32_t i = 0; i < count; ++i) {
        winnow_device_info info{};
        info.struct_size = sizeof info;
        if (api.device_info(i, &info, nullptr, 0) != WINNOW_OK) continue;
        has_cpu = has_cpu || info.type == WINNOW_DEVICE_CPU;
        if (info.type == WINNOW_DEVICE_GPU && !copies)
            copies = (info.capabilities & WINNOW_CAPABILITY_UNIFIED_MEMORY) == 0;
    }
    return has_cpu && copies.value_or(false) ? "cpu" : nullptr;
}

} // namespace

Context::Context(const winnow_api& api, Purpose purpose)
    : api_(api), threads_(static_cast<int>(std::thread::hardware_concurrency())) {
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = purpose == Purpose::virtual_caches ? nullptr : device_in_place(api);
    desc.log = forward_log;
    desc.log_level = WINNOW_LOG_INFO;
    if (have_team()) {
        desc.parallel_for = run_on_team;
        desc.parallel_user_data = &threads_;
    }
    if (purpose == Purpose::in_place) kernels_ = Track::begin("kernels, caches in place");
    if (purpose == Purpose::virtual_caches) kernels_ = Track::begin("kernels, virtual caches");
    if (kernels_) {
        desc.launched = Track::add_launch;
        desc.launched_user_data = kernels_.get();
    }
    char message[512] = "";
    const int32_t status = api_.context_create(&desc, &context_, message, sizeof message);
    if (status != WINNOW_OK) {
        throw std::runtime_error(std::string(message) + " (" + api_.status_name(status) + ")");
    }
}

Context::~Context() {
    api_.context_destroy(context_); // tells of its last launches
    if (kernels_ && !kernels_->end()) log_line(GGML_LOG_LEVEL_ERROR, "WINNOW_TRACE: not all could be written");
}

winnow_device_info Context::info() const {
    winnow_device_info info{};
    info.struct_size = sizeof info;
    api_.context_info(context_, &info);
    return info;
}

winnow_stats Context::stats() const {
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    api_.context_stats(context_, &stats);
    return stats;
}

ContextFigures Context::figures() const { return {info().name, stats(), waits_}; }

int32_t Context::finish() {
    const int32_t status = api_.finish(context_);
    if (status != WINNOW_OK) return status; // another call would end what message() returns
    const uint64_t launches = stats().kernel_launches;
    if (std::exchange(launches_waited_for_, launches) != launches) ++waits_;
    return WINNOW_OK;
}

Plugin::Plugin() {
    winnow_host_info host{};
    host.struct_size = sizeof host;
    host.min_version = WINNOW_API_VERSION;
    host.max_version = WINNOW_API_VERSION;
    host.host_name = "ggml";
    winnow_library library{};
    char message[1024] = "";
    const int32_t status = winnow_library_open(nullptr, &host, &library, message, sizeof message);
    if (status == WINNOW_ERROR_VERSION) {
        throw std::runtime_error("this host needs a backend of ABI version " +
                                 std::to_string(WINNOW_VERSION_MAJOR(host.min_version)) + '.' +
                                 std::to_string(WINNOW_VERSION_MINOR(host.min_version)) + ": " + message);
    }
    if (status != WINNOW_OK) throw std::runtime_error(message);
    api_ = library.api;
    path_ = library.path;
    probe_ = std::make_unique<Context>(*api_, Purpose::questions);
    device_ = probe_->info();
}

bool Plugin::supports(const winnow_sdpa_desc& desc) const {
    const std::lock_guard lock(probe_mutex);
    return api_->supports_sdpa(probe_->get(), &desc, nullptr, 0) == WINNOW_OK;
}

bool Plugin::supports(const winnow_kv_append_desc& desc) const {
    const std::lock_guard lock(probe_mutex);
    return api_->supports_kv_append(probe_->get(), &desc, nullptr, 0) == WINNOW_OK;
}

CacheMeaning Plugin::meaning_of(const winnow_cache_desc& desc) const {
    const std::lock_guard lock(probe_mutex);
    return ggml::meaning_of(*api_, probe_->get(), desc);
}

} // namespace winnow::ggml
