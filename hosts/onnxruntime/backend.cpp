// Opened for each session: contexts of sessions share nothing.
#include "backend.hpp"

namespace winnow::ort {

namespace {

void WINNOW_CALL forward_log(void* user_data, int32_t level, const char* text) {
    const Log& log = *static_cast<const Log*>(user_data);
    if (level <= WINNOW_LOG_ERROR)
        log.error(text);
    else if (level == WINNOW_LOG_WARNING)
        log.warning(text);
    else
        log.info(text);
}

} // namespace

Backend::Backend(const Options& options, const Log& log) {
    winnow_host_info host{};
    host.struct_size = sizeof host;
    host.min_version = host.max_version = WINNOW_API_VERSION;
    host.host_name = "onnxruntime";
    char message[1024] = "";
    if (winnow_library_open(options.backend.c_str(), &host, &library_, message, sizeof message) != WINNOW_OK)
        throw Error(message);
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = options.device.c_str();
    desc.log = forward_log;
    desc.log_user_data = const_cast<Log*>(&log); // which forward_log only reads
    desc.log_level = WINNOW_LOG_INFO;
    const bool has_caches = library_.caches != nullptr;
    if (!has_caches || api().context_create(&desc, &context_, message, sizeof message) != WINNOW_OK) {
        const std::string reason = has_caches ? message : std::string(library_.path) + " has no caches";
        winnow_library_close(&library_);
        throw Error(reason);
    }
}

Backend::~Backend() {
    api().context_destroy(context_);
    winnow_library_close(&library_);
}

winnow_device_info Backend::device() const {
    winnow_device_info info{};
    info.struct_size = sizeof info;
    expect(api().context_info(context_, &info));
    return info;
}

winnow_stats Backend::stats() const {
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    expect(api().context_stats(context_, &stats));
    return stats;
}

void Backend::expect(int32_t status) const {
    if (status != WINNOW_OK)
        throw Error(std::string(api().context_message(context_)) + " (" + api().status_name(status) + ")", ORT_FAIL);
}

} // namespace winnow::ort
