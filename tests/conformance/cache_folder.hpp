// Where tests of the level "Cache" put the files that a cache saves.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

namespace winnow::conformance {

// A folder for the files of one test, gone with it.
class Folder {
public:
    Folder() : path_(std::filesystem::temp_directory_path() / ("winnow-cache-" + std::to_string(getpid()))) {
        std::filesystem::create_directory(path_);
    }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    std::string file(const char* name) const { return (path_ / name).string(); }
    size_t files() const {
        return size_t(std::distance(std::filesystem::directory_iterator(path_), std::filesystem::directory_iterator()));
    }

private:
    std::filesystem::path path_;
};

} // namespace winnow::conformance
