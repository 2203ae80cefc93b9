// Loading the Winnow backend and making contexts of it.
#include "plugin.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "ggml_api.hpp"
#include "threads.hpp"
#include "winnow_loader.h"

namespace winnow::ggml {

namespace {

void WINNOW_CALL forward_log(void*, int32_t level, const char* text) {
    const enum ggml_log_level ggml_level = level <= WINNOW_LOG_ERROR     ? GGML_LOG_LEVEL_ERROR
                                           : level == WINNOW_LOG_WARNING ? GGML_LOG_LEVEL_WARN
                                           : level == WINNOW_LOG_INFO    ? GGML_LOG_LEVEL_INFO
                                                                         : GGML_LOG_LEVEL_DEBUG;
    log_line(ggml_level, "%s", text);
}

std::mutex probe_mutex;

bool is_device_named() {
    const char* named = std::getenv("WINNOW_DEVICE");
    return named && *named;
}

bool reaches_host_memory(const winnow_device_info& info) {
    return (info.capabilities & WINNOW_CAPABILITY_UNIFIED_MEMORY) != 0;
}

auto is_of_type(uint32_t type) {
    return [type](const winnow_device_info& info) { return info.type == type; };
}

// Where to look for a device of caches in place, which lie in the host's memory: at what Winnow takes by itself (the
// first GPU, else the first device), if that says that it reaches this memory; then at a CPU, and at all others.
// Nowhere if the user has named one.
std::vector<std::string> devices_in_place(const winnow_api& api) {
    uint32_t count = 0;
    if (is_device_named() || api.device_count(&count, nullptr, 0) != WINNOW_OK) return {};
    std::vector<winnow_device_info> infos(count);
    for (uint32_t i = 0; i < count; ++i) {
        infos[i].struct_size = sizeof infos[i];
        if (api.device_info(i, &infos[i], nullptr, 0) != WINNOW_OK) infos[i] = {}; // it reaches nothing
    }
    const auto gpu = std::find_if(infos.begin(), infos.end(), is_of_type(WINNOW_DEVICE_GPU));
    std::vector<std::string> places;
    if (count > 0 && reaches_host_memory(gpu != infos.end() ? *gpu : infos.front())) places.push_back("");
    if (std::any_of(infos.begin(), infos.end(), is_of_type(WINNOW_DEVICE_CPU))) places.push_back("cpu");
    for (uint32_t i = 0; i < count; ++i)
        if (reaches_host_memory(infos[i])) places.push_back(std::to_string(i));
    return places;
}

} // namespace

Context::Context(const winnow_library& library, Purpose purpose, const std::string& device)
    : library_(library), threads_(static_cast<int>(std::thread::hardware_concurrency())) {
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = device.c_str();
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
    const int32_t status = api().context_create(&desc, &context_, message, sizeof message);
    if (status != WINNOW_OK) {
        throw std::runtime_error(std::string(message) + " (" + api().status_name(status) + ")");
    }
}

Context::~Context() {
    api().context_destroy(context_); // tells of its last launches
    if (kernels_ && !kernels_->end()) log_line(GGML_LOG_LEVEL_ERROR, "WINNOW_TRACE: not all could be written");
}

winnow_device_info Context::info() const {
    winnow_device_info info{};
    info.struct_size = sizeof info;
    api().context_info(context_, &info);
    return info;
}

winnow_stats Context::stats() const {
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    api().context_stats(context_, &stats);
    return stats;
}

ContextFigures Context::figures() const { return {info().name, stats(), waits_}; }

int32_t Context::finish() {
    const int32_t status = api().finish(context_);
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
    char message[1024] = "";
    const int32_t status = winnow_library_open(nullptr, &host, &library_, message, sizeof message);
    if (status == WINNOW_ERROR_VERSION) {
        throw std::runtime_error("this host needs a backend of ABI version " +
                                 std::to_string(WINNOW_VERSION_MAJOR(host.min_version)) + '.' +
                                 std::to_string(WINNOW_VERSION_MINOR(host.min_version)) + ": " + message);
    }
    if (status != WINNOW_OK) throw std::runtime_error(message);
    open_device();
}

bool Plugin::take_device(const std::string& device) {
    probe_ = std::make_unique<Context>(library_, Purpose::questions, device);
    device_ = probe_->info(); // of a context, which has tried
    device_in_place_ = device;
    return reaches_host_memory(device_);
}

void Plugin::open_device() {
    const std::vector<std::string> places = devices_in_place(api());
    const auto take = [this](const std::string& device) {
        try {
            return take_device(device);
        } catch (const std::exception& error) {
            log_line(GGML_LOG_LEVEL_WARN, "device \"%s\" is not used for caches in place: %s", device.c_str(),
                     error.what());
            return false; // another one may do
        }
    };
    does_copy_ = std::none_of(places.begin(), places.end(), take) && !take_device("");
    if (!does_copy_ || is_device_named()) return;
    refusal_ = std::string("a cache in place lies in the host's memory, and no OpenCL device here reaches it: ") +
               device_.name +
               " would copy the whole cache at every call; set WINNOW_KV, so that the cache lies in the memory of the "
               "device, or name the device by WINNOW_DEVICE, to have it copied, or install an OpenCL driver for the "
               "CPU, as PoCL";
}

bool Plugin::supports(const winnow_sdpa_desc& desc) const {
    if (!refusal_.empty()) return false;
    const std::lock_guard lock(probe_mutex);
    return api().supports(probe_->get(), WINNOW_OPERATION_SDPA, &desc, nullptr, 0) == WINNOW_OK;
}

bool Plugin::supports(const winnow_kv_append_desc& desc) const {
    if (!refusal_.empty()) return false;
    const std::lock_guard lock(probe_mutex);
    return api().supports(probe_->get(), WINNOW_OPERATION_KV_APPEND, &desc, nullptr, 0) == WINNOW_OK;
}

CacheMeaning Plugin::meaning_of(const winnow_cache_desc& desc) const {
    if (library_.caches == nullptr) throw std::runtime_error(std::string(path()) + " has no caches");
    const std::lock_guard lock(probe_mutex);
    return ggml::meaning_of(api(), *library_.caches, probe_->get(), desc);
}

} // namespace winnow::ggml
