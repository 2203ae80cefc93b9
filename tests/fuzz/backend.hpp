// The reference backend as a host has it, linked into the target, and what a target does when a promise is broken.
#pragma once

#include <cstdint>
#include <string>

#include "winnow_cache.h"

namespace winnow::fuzz {

// Ends the process with the text, which libFuzzer takes for a crash and keeps the input.
[[noreturn]] void broken(const std::string& promise);
inline void require(bool holds, const char* promise) {
    if (!holds) broken(promise);
}

const winnow_api& api();
const winnow_cache_api& caches();
winnow_context* new_context();
inline std::string message_of(winnow_context* context) { return api().context_message(context); }

// A file in memory with a path, for functions that take one; one for a target is enough.
class MemoryFile {
public:
    MemoryFile();
    ~MemoryFile();
    MemoryFile(const MemoryFile&) = delete;
    MemoryFile& operator=(const MemoryFile&) = delete;

    void write(const std::string& bytes) const; // replaces what it held
    std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }

private:
    int file_;
};

} // namespace winnow::fuzz
