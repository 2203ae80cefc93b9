// WINNOW_TRACE=FILE: when kernels ran and graphs were computed, as chrome://tracing and Perfetto show it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "winnow.h"

namespace winnow::ggml {

class TraceFile;

// A line of what follows each other in the trace of the process.
class Track {
public:
    // NULL where WINNOW_TRACE is not set. Throws std::runtime_error where its file cannot be written.
    static std::unique_ptr<Track> begin(const std::string& name);
    Track(TraceFile& file, const std::string& name);
    ~Track();
    Track(const Track&) = delete;
    Track& operator=(const Track&) = delete;

    void add(const char* name, uint64_t begin_ns, uint64_t end_ns, uint64_t bytes = 0);
    // For winnow_context_desc.launched, whose user data is a Track.
    static void WINNOW_CALL add_launch(void* track, const winnow_launch* launch);
    // Writes what is still to be written, as its end does; false where the file has not all of it.
    bool end();

private:
    TraceFile& file_;
    int number_;
};

// Adds what happens while this lives.
class TraceSpan {
public:
    explicit TraceSpan(Track* track); // may be NULL
    ~TraceSpan();
    TraceSpan(const TraceSpan&) = delete;
    TraceSpan& operator=(const TraceSpan&) = delete;
    void set_name(const char* name); // it is kept

private:
    Track* track_;
    std::string name_;
    uint64_t begin_ns_ = 0;
};

} // namespace winnow::ggml
