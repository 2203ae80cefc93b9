// Why a process ends that uses a virtual cache by its address: its memory is only reserved.
#pragma once

#include <cstddef>

namespace winnow::ggml {

// A reserved range that belongs to a tensor. While there is one, a signal handler for SIGSEGV is installed. It writes a
// line to stderr, once for each range that is accessed, and hands every signal on to the handler that was there.
class ReservedRange {
public:
    ReservedRange(const void* begin, size_t size, const char* name);
    ~ReservedRange();
    ReservedRange(const ReservedRange&) = delete;
    ReservedRange& operator=(const ReservedRange&) = delete;

    struct Entry; // what the handler reads

private:
    Entry* entry_;
};

} // namespace winnow::ggml
