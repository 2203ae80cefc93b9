// What every function of the tables is made of: the guards that turn exceptions into statuses and messages, and the
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

// Runs action and returns its status; what it throws becomes a status, and both this and its text go to report.
template <class Action, class Report>
int32_t guarded(Action&& action, Report&& report) noexcept {
    int32_t status = WINNOW_ERROR_INTERNAL;
    try {
        try {
            action();
            return WINNOW_OK;
        } catch (const Error& error) {
            status = error.status();
            report(status, error.what());
        } catch (const std::bad_alloc&) {
            status = WINNOW_ERROR_OUT_OF_MEMORY;
            report(status, "out of host memory");
        } catch (const std::exception& error) {
            report(status, error.what());
        }
    } catch (...) { // there was no memory for the text: the status says what happened
    }
    return status;
}

// For functions without a context: the text goes to the caller's buffer.
template <class Action>
int32_t with_message(char* message, size_t message_size, Action&& action) noexcept {
    return guarded(action, [&](int32_t, const char* text) { copy_message(text, message, message_size); });
}

inline void check_process(const winnow_context& context) {
    if (context.device->is_of_parent()) throw forked_error();
}

// Only a failure changes the message. Where there is no memory for the text it is empty, not an earlier failure's.
inline void keep_message(winnow_context& context, const char* text) {
    context.message.clear();
    context.message = text;
}

// For functions on a context: the text is kept there and logged, unless the host has asked for such an answer
// (WOULD_WAIT). Nothing comes to the host's memory of a call that failed.
template <class Action>
int32_t on_context(winnow_context* context, Action&& action) noexcept {
    if (context == nullptr) return WINNOW_ERROR_INVALID_ARGUMENT;
    const auto run = [&] {
        check_process(*context);
        const uint64_t results = context->device->next_result();
        try {
            action();
        } catch (...) {
            context->device->drop_results_from(results);
            throw;
        }
    };
    return guarded(run, [&](int32_t status, const char* text) {
        keep_message(*context, text);
        if (status != WINNOW_ERROR_WOULD_WAIT) context->log(WINNOW_LOG_ERROR, context->message);
    });
}

// For questions on a context, whose refusal is an answer: the text is kept there and not logged.
template <class Action>
int32_t on_question(winnow_context* context, Action&& action) noexcept {
    if (context == nullptr) return WINNOW_ERROR_INVALID_ARGUMENT;
    return guarded(action, [&](int32_t, const char* text) { keep_message(*context, text); });
}

// For functions that destroy something of a context's. In the child of a fork nothing can be released.
template <class Action>
int32_t releasing(winnow_context* context, Action&& action) noexcept {
    return context->device->is_of_parent() ? WINNOW_OK : on_context(context, action);
}

template <class T>
T& checked(T* pointer, const char* name) {
    if (pointer == nullptr) invalid(std::string(name) + " is NULL");
    return *pointer;
}

inline winnow_context* context_of(winnow_buffer* buffer) { return buffer != nullptr ? buffer->context : nullptr; }
inline winnow_context* context_of(winnow_event* event) { return event != nullptr ? event->context : nullptr; }
inline winnow_context* context_of(winnow_cache* cache) { return cache != nullptr ? cache->context : nullptr; }

// The handle of an event that a call is going to have. Its memory is taken before anything happens: a call that has
// happened must not fail for want of it.
class NewEvent {
public:
    NewEvent(winnow_context& context, winnow_event** out) : context_(context), out_(out) {
        if (out == nullptr) return;
        auto handle = std::make_unique<winnow_event>();
        handle->context = &context;
        handle_ = handle.get();
        context.events.emplace(handle_, std::move(handle));
    }
    ~NewEvent() {
        if (handle_ != nullptr) context_.events.erase(handle_);
    }
    NewEvent(const NewEvent&) = delete;
    NewEvent& operator=(const NewEvent&) = delete;

    void store(std::unique_ptr<Event> event) noexcept {
        if (out_ == nullptr) return;
        handle_->event = std::move(event);
        *out_ = std::exchange(handle_, nullptr);
    }

private:
    winnow_context& context_;
    winnow_event** out_;
    winnow_event* handle_ = nullptr; // until it is stored
};

} // namespace winnow::api
