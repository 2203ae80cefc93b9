// Writing a temporary file and renaming it.
#include "whole_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>

namespace winnow::tools {

namespace fs = std::filesystem;

void write_file(const std::string& path, const std::string& text) {
    std::error_code unknown; // then opening says why
    const fs::file_status there = fs::symlink_status(path, unknown);
    const bool is_replaced = !fs::exists(there) || fs::is_regular_file(there);
    const std::string made = is_replaced ? path + '.' + std::to_string(::getpid()) + ".tmp" : path;
    const auto refusal = [&](int code) {
        return std::runtime_error("cannot write " + path + ": " + std::strerror(code));
    };
    std::FILE* file = std::fopen(made.c_str(), "wb");
    if (!file) throw refusal(errno);
    int code = std::fwrite(text.data(), 1, text.size(), file) == text.size() ? 0 : errno;
    if (std::fclose(file) != 0 && code == 0) code = errno;
    if (is_replaced && code == 0 && std::rename(made.c_str(), path.c_str()) != 0) code = errno;
    if (code == 0) return;
    if (is_replaced) std::remove(made.c_str());
    throw refusal(code);
}

} // namespace winnow::tools
