// A temporary's name is the path, the process, a serial number and ".tmp". Its writer holds a lock on it (flock), which
// goes with the process: a temporary that can be locked is nobody's any more. Where a file system knows no locks, none
// is removed.
#include "device/replaced_file.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace winnow {
namespace {

constexpr std::string_view suffix = ".tmp";

// Whether the name is `stem`, two numbers and the suffix, with a '.' before each.
bool is_temporary(std::string_view name, std::string_view stem) {
    if (!name.starts_with(stem) || !name.ends_with(suffix) || name.size() <= stem.size() + suffix.size()) return false;
    name = name.substr(stem.size(), name.size() - stem.size() - suffix.size());
    const size_t dot = name.find('.', 1);
    const auto is_number = [](std::string_view text) {
        return text.size() > 1 && text[0] == '.' &&
               std::all_of(text.begin() + 1, text.end(), [](char c) { return c >= '0' && c <= '9'; });
    };
    return dot != std::string_view::npos && is_number(name.substr(0, dot)) && is_number(name.substr(dot));
}

void remove_if_left(const std::string& path) {
    const int file = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (file < 0) return;
    if (::flock(file, LOCK_EX | LOCK_NB) == 0) ::unlink(path.c_str());
    ::close(file);
}

// What cannot be looked at or removed is no obstacle to what is to be written.
void remove_left(const std::string& path) {
    const size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "./" : path.substr(0, slash + 1);
    const std::string stem = slash == std::string::npos ? path : path.substr(slash + 1);
    DIR* const open = ::opendir(folder.c_str());
    if (open == nullptr) return;
    std::vector<std::string> names;
    while (const dirent* entry = ::readdir(open))
        if (is_temporary(entry->d_name, stem)) names.emplace_back(entry->d_name);
    ::closedir(open);
    for (const std::string& name : names) remove_if_left(folder + name);
}

void expect_file_or_nothing(const std::string& path) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0 || S_ISREG(status.st_mode)) return;
    const char* const kind = S_ISDIR(status.st_mode)   ? " is a folder"
                             : S_ISLNK(status.st_mode) ? " is a symbolic link"
                                                       : " is no regular file";
    throw Error(WINNOW_ERROR_INVALID_ARGUMENT, path + kind + ", expected a file's path");
}

} // namespace

Error file_error(const char* what, const std::string& path, int code) {
    const int32_t status = code == ENOENT || code == ENOTDIR ? WINNOW_ERROR_NOT_FOUND
                           : code == ENOMEM                  ? WINNOW_ERROR_OUT_OF_MEMORY
                                                             : WINNOW_ERROR_IO;
    return {status, std::string(what) + " " + path + ": " + std::generic_category().message(code)};
}

bool was_interrupted() { return errno == EINTR; }

ReplacedFile::ReplacedFile(const std::string& path) : path_(path) {
    expect_file_or_nothing(path_);
    remove_left(path_);
    while (!create()) {
    }
}

// False where somebody else has the name, or removed the file before it was locked.
bool ReplacedFile::create() {
    static std::atomic<unsigned> serial{0};
    temporary_ = path_ + "." + std::to_string(::getpid()) + "." + std::to_string(serial++) + std::string(suffix);
    file_ = uninterrupted([&] { return ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644); });
    if (file_ < 0 && errno == EEXIST) return false;
    if (file_ < 0) throw file_error("cannot create", temporary_, errno);
    const bool is_taken = ::flock(file_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    struct stat status {};
    if (!is_taken && (::fstat(file_, &status) != 0 || status.st_nlink > 0)) return true;
    ::close(file_);
    file_ = -1;
    return false;
}

ReplacedFile::~ReplacedFile() {
    if (file_ < 0) return;
    ::unlink(temporary_.c_str());
    ::close(file_);
}

void ReplacedFile::write(const void* data, uint64_t size) {
    auto at = static_cast<const char*>(data);
    while (size > 0) {
        const ssize_t written = uninterrupted([&] { return ::write(file_, at, size); });
        if (written <= 0) throw file_error("cannot write", temporary_, written < 0 ? errno : EIO);
        at += written;
        size -= static_cast<uint64_t>(written);
    }
}

void ReplacedFile::sync() {
    if (uninterrupted([&] { return ::fsync(file_); }) != 0) throw file_error("cannot write", temporary_, errno);
}

void ReplacedFile::put() {
    if (::rename(temporary_.c_str(), path_.c_str()) != 0) throw file_error("cannot rename to", path_, errno);
    ::close(std::exchange(file_, -1)); // not before: it holds the lock
}

} // namespace winnow
