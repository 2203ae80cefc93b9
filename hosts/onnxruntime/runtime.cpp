// The runtime is that of the callback that runs in this thread.
#include "runtime.hpp"

#include <charconv>
#include <cstdio>
#include <cstring>
#include <utility>

namespace winnow::ort {

namespace {

thread_local const Runtime* entered_runtime = nullptr;

// The first two numbers of "1.23.2". The second one is the version of the API, too.
std::pair<unsigned, unsigned> numbers_of(const char* version) {
    const char* end = version + std::strlen(version);
    std::pair<unsigned, unsigned> numbers;
    const char* point = std::from_chars(version, end, numbers.first).ptr;
    if (point != end) std::from_chars(point + 1, end, numbers.second);
    return numbers;
}

} // namespace

OrtStatus* open_runtime(const OrtApiBase& base, Runtime& runtime) noexcept {
    runtime.version = base.GetVersionString();
    // GetApi prints a line about a version that it lacks, so the number is compared before.
    if (numbers_of(runtime.version) >= std::pair(1u, unsigned{ORT_API_VERSION}))
        runtime.api = base.GetApi(ORT_API_VERSION);
    if (!runtime.api) {
        char text[160];
        std::snprintf(text, sizeof text,
                      "this is ONNX Runtime %s, expected 1.%d or later, which takes execution providers from libraries",
                      runtime.version, ORT_API_VERSION);
        return base.GetApi(1)->CreateStatus(ORT_NOT_IMPLEMENTED, text); // every runtime has version 1
    }
    runtime.ep_api = runtime.api->GetEpApi();
    return nullptr;
}

Entered::Entered(const Runtime& runtime) : before_(std::exchange(entered_runtime, &runtime)) {}
Entered::~Entered() { entered_runtime = before_; }

const char* runtime_version() { return entered_runtime->version; }
const OrtApi& api() { return *entered_runtime->api; }
const OrtEpApi& ep_api() { return *entered_runtime->ep_api; }

void check(OrtStatus* status) {
    if (!status) return;
    const std::string text = api().GetErrorMessage(status);
    const OrtErrorCode code = api().GetErrorCode(status);
    api().ReleaseStatus(status);
    throw Error(text, code);
}

OrtStatus* current_exception_as_status() noexcept {
    try {
        throw;
    } catch (const Error& error) {
        return api().CreateStatus(error.code(), error.what());
    } catch (const std::exception& error) {
        return api().CreateStatus(ORT_FAIL, error.what());
    } catch (...) {
        return api().CreateStatus(ORT_FAIL, "an exception of an unknown type");
    }
}

void Log::write(OrtLoggingLevel level, const std::string& text) const noexcept {
    OrtStatus* status = guarded([&] {
        const std::string line = "winnow: " + text;
        check(api().Logger_LogMessage(logger_, level, line.c_str(), "hosts/onnxruntime", 0, "winnow"));
    });
    if (status) api().ReleaseStatus(status); // a line that cannot be logged stops nothing
}

} // namespace winnow::ort
