// libwinnow_ggml.so, the library that ggml loads: asks the process which version of ggml it has, and hands on to the
// library beside this one that was compiled for it. Knows nothing of ggml's headers, so that it is the same for all.
#include <exception>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>

#include "host_library.hpp"

namespace winnow::ggml {

namespace {

// "version:library" for each version of ggml, with blanks between; WINNOW_GGML_SERVED is of the build.
constexpr std::string_view served = WINNOW_GGML_SERVED;

std::string library_for(std::string_view version) {
    std::string versions;
    for (std::string_view rest = served; !rest.empty();) {
        const std::string_view entry = rest.substr(0, rest.find(' '));
        rest.remove_prefix(entry.size() == rest.size() ? rest.size() : entry.size() + 1);
        const size_t colon = entry.find(':');
        if (entry.substr(0, colon) == version) return "libwinnow_ggml-" + std::string(entry.substr(colon + 1)) + ".so";
        versions += (versions.empty() ? "" : ", ") + std::string(entry.substr(0, colon));
    }
    throw std::runtime_error("this process has ggml " + std::string(version) +
                             ", and libwinnow_ggml.so was built for " + versions +
                             "; build Winnow with the source tree of its llama.cpp as WINNOW_LLAMA_CPP_DIR");
}

std::filesystem::path own_folder() {
    Dl_info info{};
    if (dladdr(&served, &info) == 0 || !info.dli_fname)
        throw std::runtime_error("libwinnow_ggml.so cannot find itself");
    return std::filesystem::canonical(info.dli_fname).parent_path();
}

void* initialise(const HostLibrary& host, const void* caller) {
    const char* (*version)() = nullptr;
    if (!host.find("ggml_version", version)) {
        throw std::runtime_error("this process has a ggml without ggml_version, which is older than any that "
                                 "libwinnow_ggml.so can serve");
    }
    const std::string path = own_folder() / library_for(version());
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        const char* reason = dlerror();
        throw std::runtime_error(std::string("cannot load the library for ggml ") + version() + ": " +
                                 (reason ? reason : path));
    }
    auto* init = reinterpret_cast<void* (*)(const void*)>(dlsym(library, "winnow_ggml_init"));
    void* registration = init ? init(caller) : nullptr; // which says in the log why there is none
    if (!registration) dlclose(library);
    if (!init) throw std::runtime_error(path + " is not of Winnow: no winnow_ggml_init");
    return registration;
}

} // namespace

} // namespace winnow::ggml

// What ggml looks for: returns a ggml_backend_reg_t, NULL with a line in ggml's log if there is none.
extern "C" __attribute__((visibility("default"))) void* ggml_backend_init(void) {
    const void* caller = __builtin_return_address(0);
    const winnow::ggml::HostLibrary host(caller);
    try {
        return winnow::ggml::initialise(host, caller);
    } catch (const std::exception& failure) {
        constexpr int error = 4; // GGML_LOG_LEVEL_ERROR
        void (*log)(int level, const char* format, ...) = nullptr;
        if (host.find("ggml_log_internal", log)) log(error, "winnow: %s\n", failure.what());
        return nullptr;
    }
}
