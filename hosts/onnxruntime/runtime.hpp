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

// Takes the tables of the runtime that loads this library. Returns a status where the runtime is too old.
OrtStatus* open_runtime(const OrtApiBase& base) noexcept;
const char* runtime_version(); // "1.23.2"
const OrtApi& api();           // valid after open_runtime, as is the next one
const OrtEpApi& ep_api();

// Throws the message of a status that is an error, and releases it.
void check(OrtStatus* status);
// Makes a status of the exception that is being handled.
OrtStatus* current_exception_as_status() noexcept;

// Runs what a callback of the runtime does: no exception leaves it.
template <class Body>
OrtStatus* guarded(Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
        return nullptr;
    } catch (...) {
        return current_exception_as_status();
    }
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
