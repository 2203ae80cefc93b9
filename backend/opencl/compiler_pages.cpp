// By the program headers of the libraries that are loaded, which is what Linux and its C library offer for it.
#include "opencl/compiler_pages.hpp"

#ifdef __linux__
#include <link.h>
#include <sys/mman.h>

#include <cstdint>
#include <string_view>

#include "opencl/memory.hpp"
#endif

namespace winnow::opencl {

#ifdef __linux__
namespace {

bool is_compiler(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1); // npos + 1 is 0
    return name.starts_with("libLLVM") || name.starts_with("libclang-cpp");
}

// Code is a private mapping of the library's file, and nothing writes into it: pages that are dropped come from the
// file again. Data does not, as the loader has written addresses into it.
int release_code(dl_phdr_info* library, size_t, void* bytes) {
    if (!is_compiler(library->dlpi_name)) return 0;
    for (int i = 0; i < library->dlpi_phnum; ++i) {
        const auto& part = library->dlpi_phdr[i];
        const bool is_code = part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0 && (part.p_flags & PF_W) == 0;
        if (!is_code) continue;
        const PageRange pages(reinterpret_cast<const void*>(library->dlpi_addr + part.p_vaddr), part.p_filesz);
        if (::madvise(pages.data(), pages.size(), MADV_DONTNEED) == 0) *static_cast<size_t*>(bytes) += pages.size();
    }
    return 0;
}

} // namespace

size_t release_compiler_pages() {
    size_t bytes = 0;
    ::dl_iterate_phdr(release_code, &bytes);
    return bytes;
}
#else
size_t release_compiler_pages() { return 0; }
#endif

} // namespace winnow::opencl
