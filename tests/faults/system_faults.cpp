// Definitions of open, read, write, pread, pwrite, preadv2, posix_fallocate, sync_file_range, fsync, rename, flock,
// fstat and mkdir that ask first whether to fail, and of posix_fadvise.
#include "system_faults.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <map>
#include <mutex>
#include <set>
#include <thread>

namespace winnow::faults {
namespace {

std::mutex mutex; // of what follows
std::string watched, function;
uint64_t first = 0, times = 0, calls = 0, failures = 0;
int error = 0;
bool is_page_cache_hidden = false;
std::map<int, std::vector<std::pair<uint64_t, uint64_t>>> stretches_by_advice;
std::set<std::thread::id> callers;

int next_error(const char* name, const std::string& path) {
    const std::lock_guard guard(mutex);
    if (first == 0 || function != name || !path.starts_with(watched)) return 0;
    callers.insert(std::this_thread::get_id());
    if (++calls < first || calls >= first + times) return 0;
    ++failures;
    return error;
}

std::string path_of(int file) {
    char path[4096];
    const ssize_t size = ::readlink(("/proc/self/fd/" + std::to_string(file)).c_str(), path, sizeof path);
    return size > 0 ? std::string(path, static_cast<size_t>(size)) : std::string();
}

template <typename F>
F next(const char* name) {
    return reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

// What has to be returned, or 1 where the call is to be made. `count`: of bytes, to be made smaller.
int interfere(const char* name, const std::string& path, size_t* count = nullptr) {
    const int wanted = next_error(name, path);
    if (wanted == killed) ::raise(SIGKILL);
    if (wanted == stopped) ::raise(SIGSTOP);
    if (wanted == short_count && count != nullptr) *count = 1;
    if (wanted == no_count) return 0;
    if (wanted <= 0) return 1;
    errno = wanted;
    return -1;
}

} // namespace

void arm_system(const std::string& folder, const std::string& name, uint64_t at, int code, uint64_t how_often) {
    const std::lock_guard guard(mutex);
    watched = folder;
    function = name;
    first = at;
    times = how_often;
    error = code;
    calls = failures = 0;
    stretches_by_advice.clear();
    callers.clear();
}

std::vector<std::pair<uint64_t, uint64_t>> advised(int advice) {
    const std::lock_guard guard(mutex);
    return stretches_by_advice[advice];
}

void hide_page_cache(bool is_hidden) {
    const std::lock_guard guard(mutex);
    is_page_cache_hidden = is_hidden;
}

size_t system_threads() {
    const std::lock_guard guard(mutex);
    return callers.size();
}

uint64_t system_failures() {
    const std::lock_guard guard(mutex);
    return failures;
}

} // namespace winnow::faults

// Seen by the objects that this program loads.
#pragma GCC visibility push(default)
extern "C" {

int open(const char* path, int flags, ...) {
    va_list arguments;
    va_start(arguments, flags);
    const bool makes_file = (flags & O_CREAT) != 0 || (flags & O_TMPFILE) == O_TMPFILE;
    const mode_t mode = makes_file ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if (const int result = winnow::faults::interfere("open", path); result != 1) return result;
    return winnow::faults::next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}

ssize_t read(int file, void* data, size_t size) {
    if (const int result = winnow::faults::interfere("read", winnow::faults::path_of(file), &size); result != 1)
        return result;
    return winnow::faults::next<ssize_t (*)(int, void*, size_t)>("read")(file, data, size);
}

ssize_t write(int file, const void* data, size_t size) {
    if (const int result = winnow::faults::interfere("write", winnow::faults::path_of(file), &size); result != 1)
        return result;
    return winnow::faults::next<ssize_t (*)(int, const void*, size_t)>("write")(file, data, size);
}

ssize_t pread(int file, void* data, size_t size, off_t offset) {
    if (const int result = winnow::faults::interfere("pread", winnow::faults::path_of(file), &size); result != 1)
        return result;
    return winnow::faults::next<ssize_t (*)(int, void*, size_t, off_t)>("pread")(file, data, size, offset);
}

ssize_t pwrite(int file, const void* data, size_t size, off_t offset) {
    if (const int result = winnow::faults::interfere("pwrite", winnow::faults::path_of(file), &size); result != 1)
        return result;
    return winnow::faults::next<ssize_t (*)(int, const void*, size_t, off_t)>("pwrite")(file, data, size, offset);
}

ssize_t preadv2(int file, const struct iovec* to, int count, off_t offset, int flags) {
    if (winnow::faults::is_page_cache_hidden) {
        errno = EAGAIN;
        return -1;
    }
    struct iovec first = *to;
    const bool is_one = count == 1; // as all calls of ours
    if (const int result =
            winnow::faults::interfere("preadv2", winnow::faults::path_of(file), is_one ? &first.iov_len : nullptr);
        result != 1)
        return result;
    return winnow::faults::next<ssize_t (*)(int, const struct iovec*, int, off_t, int)>("preadv2")(
        file, is_one ? &first : to, count, offset, flags);
}

int posix_fadvise(int file, off_t offset, off_t size, int advice) {
    {
        const std::string path = winnow::faults::path_of(file);
        const std::lock_guard guard(winnow::faults::mutex);
        const auto begin = static_cast<uint64_t>(offset);
        if (!winnow::faults::watched.empty() && path.starts_with(winnow::faults::watched))
            winnow::faults::stretches_by_advice[advice].emplace_back(begin, begin + static_cast<uint64_t>(size));
    }
    return winnow::faults::next<int (*)(int, off_t, off_t, int)>("posix_fadvise")(file, offset, size, advice);
}

int sync_file_range(int file, off_t offset, off_t size, unsigned int flags) {
    if (const int result = winnow::faults::interfere("sync_file_range", winnow::faults::path_of(file)); result != 1)
        return result;
    return winnow::faults::next<int (*)(int, off_t, off_t, unsigned int)>("sync_file_range")(file, offset, size, flags);
}

int posix_fallocate(int file, off_t offset, off_t size) {
    if (winnow::faults::interfere("posix_fallocate", winnow::faults::path_of(file)) == -1) return errno;
    return winnow::faults::next<int (*)(int, off_t, off_t)>("posix_fallocate")(file, offset, size);
}

int fsync(int file) {
    if (const int result = winnow::faults::interfere("fsync", winnow::faults::path_of(file)); result != 1)
        return result;
    return winnow::faults::next<int (*)(int)>("fsync")(file);
}

int flock(int file, int operation) noexcept {
    if (const int result = winnow::faults::interfere("flock", winnow::faults::path_of(file)); result != 1)
        return result;
    return winnow::faults::next<int (*)(int, int)>("flock")(file, operation);
}

int fstat(int file, struct stat* status) noexcept {
    if (const int result = winnow::faults::interfere("fstat", winnow::faults::path_of(file)); result != 1)
        return result;
    return winnow::faults::next<int (*)(int, struct stat*)>("fstat")(file, status);
}

int mkdir(const char* path, mode_t mode) noexcept {
    if (const int result = winnow::faults::interfere("mkdir", path); result != 1) return result;
    return winnow::faults::next<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int rename(const char* from, const char* to) noexcept {
    if (const int result = winnow::faults::interfere("rename", from); result != 1) return result;
    return winnow::faults::next<int (*)(const char*, const char*)>("rename")(from, to);
}
}
#pragma GCC visibility pop
