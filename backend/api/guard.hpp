// What every function of the table is made of: the guards that turn exceptions into statuses and messages, and the
// handles that calls give out.
#pragma once

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "api/handles.hpp"
#include "api/structs.hpp"

namespace winnow::api {

inline void copy_message(const char* text, char* message, size_t message_size) noexcept {
    if (message != nullptr && message_size > 0) std::snprintf(message, message_size, "%s", text);
}

// Runs action and returns its status; what it throws becomes a status, and its text is handed to report.
template <class Action, class Report>
int32_t guarded(Action&& action, Report&& report) noexcept {
    try {
        try {
            action();
            return WINNOW_OK;
        } catch (const Error& error) {
            report(error.what());
            return error.status();
        } catch (const std::bad_alloc&) {
            report("out of host memory");
            return WINNOW_ERROR_OUT_OF_MEMORY;
        } catch (const std::exception& error) {
            report(error.what());
            return WINNOW_ERROR_INTERNAL;
        }
    } catch (...) {
        return WINNOW_ERROR_INTERNAL;
    }
}

// For functions without a context: the text goes to the caller's buffer.
template <class Action>
int32_t with_message(char* message, size_t message_size, Action&& action) noexcept {
    return guarded(action, [&](const char* text) { copy_message(text, message, message_size); });
}

// For functions on a context: the text is kept there and logged.
template <class Action>
int32_t on_context(winnow_context* context, Action&& action) noexcept {
    if (context == nullptr) return WINNOW_ERROR_INVALID_ARGUMENT;
    return guarded(action, [&](const char* text) {
        context->message = text;
        context->log(WINNOW_LOG_ERROR, context->message);
    });
}

template <class T>
T& checked(T* pointer, const char* name) {
    if (pointer == nullptr) invalid(std::string(name) + " is NULL");
    return *pointer;
}

inline winnow_context* context_of(winnow_buffer* buffer) { return buffer != nullptr ? buffer->context : nullptr; }
inline winnow_context* context_of(winnow_event* event) { return event != nullptr ? event->context : nullptr; }

inline void store_event(winnow_context& context, std::unique_ptr<Event> event, winnow_event** out) {
    if (out == nullptr) return;
    auto handle = std::make_unique<winnow_event>();
    handle->context = &context;
    handle->event = std::move(event);
    winnow_event* const key = handle.get();
    context.events.emplace(key, std::move(handle));
    *out = key;
}

} // namespace winnow::api
