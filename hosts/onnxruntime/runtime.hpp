// ONNX Runtime's tables of functions; statuses of its become exceptions here, and exceptions become statuses.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "onnxruntime_c_api.h"

namespace winnow::ort {

class Error : public std::runtime_error {
public:
    explicit Error(const std::string& text, OrtErrorCode code = ORT_INVALID_ARGUMENT)
        : std::runtime_error(text), code_(code) {}
    OrtErrorCode code() const { return code_; }

private:
    OrtErrorCode code_;
};

// A runtime that has loaded this library. A process may have several, as one of onnxruntime and one of
// onnxruntime-genai.
struct Runtime {
    const OrtApi* api = nullptr;
    const OrtEpApi* ep_api = nullptr;
    const char* version = ""; // "1.23.2"
};

// Takes the tables of a runtime. Returns a status of its where it is too old.
OrtStatus* open_runtime(const OrtApiBase& base, Runtime& runtime) noexcept;

// While it lives, the functions below are about this runtime, in this thread.
class Entered {
public:
    explicit Entered(const Runtime& runtime);
    ~Entered();
    Entered(const Entered&) = delete;
    Entered& operator=(const Entered&) = delete;

private:
    const Runtime* before_;
};

const char* runtime_version();
const OrtApi& api();
const OrtEpApi& ep_api();

// Throws the message of a status that is an error, and releases it.
void check(OrtStatus* status);
// Makes a status of the exception that is being handled.
OrtStatus* current_exception_as_status() noexcept;

// Makes a status of what a body throws.
template <class Body>
OrtStatus* guarded(Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
        return nullptr;
    } catch (...) {
        return current_exception_as_status();
    }
}

// Runs what a callback of a runtime does: no exception leaves it.
template <class Body>
OrtStatus* guarded(const Runtime& runtime, Body&& body) noexcept {
    const Entered entered(runtime);
    return guarded(std::forward<Body>(body));
}

// Writes lines to a logger of the runtime, each beginning with "winnow: ".
class Log {
public:
    explicit Log(const OrtLogger* logger) : logger_(logger) {}
    void info(const std::string& text) const noexcept { write(ORT_LOGGING_LEVEL_INFO, text); }
    void warning(const std::string& text) const noexcept { write(ORT_LOGGING_LEVEL_WARNING, text); }
    void error(const std::string& text) const noexcept { write(ORT_LOGGING_LEVEL_ERROR, text); }

private:
    void write(OrtLoggingLevel level, const std::string& text) const noexcept;

    const OrtLogger* logger_;
};

} // namespace winnow::ort
