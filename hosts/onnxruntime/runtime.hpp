// ONNX Runtime's tables of functions. Turns its statuses into exceptions, and exceptions into statuses.
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

// A runtime that has loaded this library. A process may have several: onnxruntime and onnxruntime-genai can each bring
// one.
struct Runtime {
    const OrtApi* api = nullptr;
    const OrtEpApi* ep_api = nullptr;
    const char* version = ""; // "1.23.2"
};

// Fills `runtime` with the tables of a runtime. Returns an error status if the runtime is too old.
OrtStatus* open_runtime(const OrtApiBase& base, Runtime& runtime) noexcept;

// Selects the runtime that the functions below use in this thread, as long as the object lives.
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

// Does nothing for a null status. Otherwise releases the status and throws its message.
void check(OrtStatus* status);
// Returns the exception that is being handled as a status.
OrtStatus* current_exception_as_status() noexcept;

// Runs `body` and returns what it throws as a status.
template <class Body>
OrtStatus* guarded(Body&& body) noexcept {
    try {
        std::forward<Body>(body)();
        return nullptr;
    } catch (...) {
        return current_exception_as_status();
    }
}

// Runs the body of a callback of `runtime`, which no exception may leave.
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
