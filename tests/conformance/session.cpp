// Loading a backend and talking to it through the table.
#include "session.hpp"

#include <gtest/gtest.h>

#include <filesystem>
#include <stdexcept>

#include "levels.hpp"

namespace winnow::conformance {

void Session::open(const std::string& backend, const std::string& device, const std::string& variants) {
    // A bare file name is a file when there is one, and a short name for the loader otherwise.
    std::string name = backend;
    if (name.find('/') == std::string::npos && std::filesystem::is_regular_file(name)) name = "./" + name;
    char message[4096] = "";
    const winnow_host_info host = {sizeof host, WINNOW_API_VERSION, WINNOW_API_VERSION, 0, "winnow-conformance"};
    if (winnow_library_open(name.c_str(), &host, &library_, message, sizeof message) != WINNOW_OK)
        throw std::runtime_error("cannot open the backend \"" + backend + "\": " + message);
    path_ = library_.path;
    device_ = device;
    variants_ = variants;
    context_ = new_context();
}

void Session::write_log(const std::string& path) {
    if (path.empty()) return;
    log_.reset(std::fopen(path.c_str(), "w"));
    if (!log_) throw std::runtime_error("cannot write the log \"" + path + "\"");
}

void Session::close() {
    if (context_) library_.api->context_destroy(context_);
    context_ = nullptr;
    winnow_library_close(&library_);
}

winnow_context* Session::new_context(winnow_launch_callback launched, void* launched_user_data) const {
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    desc.device = device_.c_str();
    desc.variants = variants_.c_str();
    desc.launched = launched;
    desc.launched_user_data = launched_user_data;
    if (log_) { // of several threads' contexts: a line is written as a whole
        desc.log = [](void* log, int32_t, const char* text) {
            std::fprintf(static_cast<std::FILE*>(log), "%s\n", text);
        };
        desc.log_user_data = log_.get();
        desc.log_level = WINNOW_LOG_DEBUG;
    }
    winnow_context* context = nullptr;
    char message[1024] = "";
    if (api().context_create(&desc, &context, message, sizeof message) != WINNOW_OK)
        throw std::runtime_error(path_ + ": no context: " + message);
    return context;
}

winnow_device_info Session::info() const {
    winnow_device_info info{};
    info.struct_size = sizeof info;
    if (api().context_info(context_, &info) != WINNOW_OK) throw std::runtime_error("context_info: " + message());
    return info;
}

winnow_stats Session::stats() const {
    winnow_stats stats{};
    stats.struct_size = sizeof stats;
    if (api().context_stats(context_, &stats) != WINNOW_OK) throw std::runtime_error("context_stats: " + message());
    return stats;
}

bool Session::offers_formats() const {
    uint64_t bytes = 0;
    return api().row_bytes(WINNOW_TYPE_Q8_0, 32, &bytes, nullptr, 0) != WINNOW_ERROR_UNIMPLEMENTED;
}

void Session::note_not_offered(const std::string& what) {
    const Level* const level = level_of(testing::UnitTest::GetInstance()->current_test_suite()->name());
    ++refusals_;
    ++not_offered_[std::string("level ") + level->name + ": " + what];
}

bool Session::has_not_offered(const std::string& level) const {
    const std::string beginning = "level " + level + ":";
    const auto first = not_offered_.lower_bound(beginning);
    return first != not_offered_.end() && first->first.starts_with(beginning);
}

namespace {

Session::Answer ask(const Session& session, uint32_t operation, const void* desc) {
    char answer[1024] = "";
    const int32_t status = session.api().supports(session.context(), operation, desc, answer, sizeof answer);
    return {status, status == WINNOW_OK ? answer : session.message()};
}

} // namespace

Session::Answer Session::supports(const winnow_sdpa_desc& desc) const {
    return ask(*this, WINNOW_OPERATION_SDPA, &desc);
}
Session::Answer Session::supports(const winnow_kv_append_desc& desc) const {
    return ask(*this, WINNOW_OPERATION_KV_APPEND, &desc);
}
Session::Answer Session::supports(const winnow_kv_requantize_desc& desc) const {
    return ask(*this, WINNOW_OPERATION_KV_REQUANTIZE, &desc);
}
Session::Answer Session::supports(const winnow_kv_dequantize_desc& desc) const {
    return ask(*this, WINNOW_OPERATION_KV_DEQUANTIZE, &desc);
}
Session::Answer Session::supports(const winnow_hadamard_desc& desc) const {
    return ask(*this, WINNOW_OPERATION_HADAMARD, &desc);
}

int32_t Session::run(const winnow_sdpa_desc& desc, winnow_event** event) {
    const int32_t status = api().sdpa(context_, &desc, event);
    sdpa_calls_ += status == WINNOW_OK;
    return status;
}

int32_t Session::run(const winnow_kv_append_desc& desc, winnow_event** event) {
    const int32_t status = api().kv_append(context_, &desc, event);
    kv_append_calls_ += status == WINNOW_OK;
    return status;
}

int32_t Session::run(const winnow_kv_requantize_desc& desc, winnow_event** event) {
    const int32_t status = api().kv_requantize(context_, &desc, event);
    row_calls_ += status == WINNOW_OK;
    return status;
}

int32_t Session::run(const winnow_kv_dequantize_desc& desc, winnow_event** event) {
    const int32_t status = api().kv_dequantize(context_, &desc, event);
    row_calls_ += status == WINNOW_OK;
    return status;
}

int32_t Session::run(const winnow_hadamard_desc& desc, winnow_event** event) {
    const int32_t status = api().hadamard(context_, &desc, event);
    row_calls_ += status == WINNOW_OK;
    return status;
}

} // namespace winnow::conformance
