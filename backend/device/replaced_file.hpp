// A file that is written beside its place and takes it when it is complete: who opens the path sees the old file or the
// new one. And what a failure of the system's on a file is to the C boundary.
#pragma once

#include <cstdint>
#include <string>

#include "device/device.hpp"

namespace winnow {

// "what path: the system's text", with WINNOW_ERROR_NOT_FOUND where there is no such file or folder, OUT_OF_MEMORY, or
// IO. code: of errno.
Error file_error(const char* what, const std::string& path, int code);

bool was_interrupted(); // the system's last call that failed, by a signal

// Calls again as long as that happens.
template <class Call>
auto uninterrupted(Call&& call) {
    for (;;) {
        const auto result = call();
        if (result != -1 || !was_interrupted()) return result;
    }
}

class ReplacedFile {
public:
    // Removes what killed processes left beside the path. Throws Error where no file can be made there: as file_error,
    // and INVALID_ARGUMENT where something is that is no file.
    explicit ReplacedFile(const std::string& path);
    ~ReplacedFile(); // removes what was not put
    ReplacedFile(const ReplacedFile&) = delete;
    ReplacedFile& operator=(const ReplacedFile&) = delete;

    void write(const void* data, uint64_t size);
    void sync(); // to the disk
    void put();  // into its place

private:
    bool create();

    std::string path_, temporary_;
    int file_ = -1;
};

} // namespace winnow
