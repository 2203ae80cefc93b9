// What the targets share.
#include "backend.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

namespace winnow::fuzz {

void broken(const std::string& promise) {
    std::fprintf(stderr, "broken promise: %s\n", promise.c_str());
    std::abort();
}

const winnow_api& api() {
    static const winnow_api* const table = [] {
        const winnow_host_info host = {sizeof host, WINNOW_API_VERSION, WINNOW_API_VERSION, 0, "fuzz"};
        const winnow_api* found = nullptr;
        require(winnow_get_api(&host, &found, nullptr, 0) == WINNOW_OK, "the backend speaks this version");
        return found;
    }();
    return *table;
}

const winnow_cache_api& caches() {
    static const winnow_cache_api* const table = [] {
        const void* found = nullptr;
        require(api().get_table(WINNOW_CACHE_TABLE, WINNOW_CACHE_VERSION, &found, nullptr, 0) == WINNOW_OK,
                "the backend has caches of this version");
        return static_cast<const winnow_cache_api*>(found);
    }();
    return *table;
}

winnow_context* new_context() {
    winnow_context_desc desc{};
    desc.struct_size = sizeof desc;
    winnow_context* context = nullptr;
    require(api().context_create(&desc, &context, nullptr, 0) == WINNOW_OK, "a context can be made");
    return context;
}

MemoryFile::MemoryFile() : file_(::memfd_create("winnow-fuzz", MFD_CLOEXEC)) {
    require(file_ >= 0, "a file in memory can be made");
}

MemoryFile::~MemoryFile() { ::close(file_); }

void MemoryFile::write(const std::string& bytes) const {
    require(::ftruncate(file_, 0) == 0, "a file in memory can be emptied");
    const ssize_t written = ::pwrite(file_, bytes.data(), bytes.size(), 0);
    require(written == static_cast<ssize_t>(bytes.size()), "a file in memory can be written");
}

} // namespace winnow::fuzz
