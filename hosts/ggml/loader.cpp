// libwinnow_ggml.so, the library that ggml loads: asks the process which ggml it has, and hands on to that of the
// libraries beside this one that fits. Knows nothing of ggml's headers, so that it is the same for all versions.
#include <algorithm>
#include <exception>
#include <filesystem>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "host_library.hpp"
#include "library_choice.hpp"
#include "number_variables.hpp"
#include "run_log.hpp"

namespace winnow::ggml {

namespace {

// Of the build: the libraries that there may be, and the versions that tests have seen.
constexpr std::string_view libraries_text = WINNOW_GGML_LIBRARIES, tested_text = WINNOW_GGML_TESTED;

constexpr int warning = 3, error = 4; // GGML_LOG_LEVEL_WARN, GGML_LOG_LEVEL_ERROR

void log(const HostLibrary& host, int level, const std::string& text) {
    note_run(level == error ? "error" : "warning", text);
    void (*log_internal)(int level, const char* format, ...) = nullptr;
    if (host.find("ggml_log_internal", log_internal)) log_internal(level, "winnow: %s\n", text.c_str());
}

std::filesystem::path own_folder() {
    Dl_info info{};
    if (dladdr(&libraries_text, &info) == 0 || !info.dli_fname)
        throw std::runtime_error("libwinnow_ggml.so cannot find itself");
    return std::filesystem::canonical(info.dli_fname).parent_path();
}

std::string ggml_version(const HostLibrary& host) {
    const char* (*version)() = nullptr;
    if (!host.find("ggml_version", version)) {
        throw std::runtime_error("this process has a ggml without ggml_version, which is older than any that "
                                 "libwinnow_ggml.so can serve");
    }
    return version();
}

// What ggml expects of backends, which is the first number of those that are registered, as its CPU backend is.
std::optional<int> api_version(const HostLibrary& host) {
    size_t (*count)() = nullptr;
    const int* (*get)(size_t index) = nullptr;
    if (!host.find("ggml_backend_reg_count", count) || !host.find("ggml_backend_reg_get", get) || count() == 0)
        return std::nullopt;
    return *get(0);
}

// A library of the folder, for as long as it is wanted.
class Loaded {
public:
    explicit Loaded(const std::filesystem::path& path) {
        if (void* earlier = dlopen(path.c_str(), RTLD_NOW | RTLD_NOLOAD)) {
            was_loaded_ = true;
            dlclose(earlier);
        }
        library_.reset(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL));
        if (!library_) {
            const char* reason = dlerror();
            throw std::runtime_error(reason ? reason : "it cannot be loaded");
        }
        difference_ = reinterpret_cast<const char* (*)(const void*)>(dlsym(library_.get(), "winnow_ggml_difference"));
        init_ = reinterpret_cast<void* (*)()>(dlsym(library_.get(), "winnow_ggml_init"));
        if (!difference_ || !init_) throw std::runtime_error("it is not of this Winnow");
    }

    bool was_loaded() const { return was_loaded_; }

    std::string difference(const void* caller) const { return difference_(caller); }

    // The registration, with which the library stays; NULL, and the log says why.
    void* init() {
        void* registration = init_();
        if (registration) static_cast<void>(library_.release());
        return registration;
    }

private:
    struct Closed {
        void operator()(void* library) const { dlclose(library); }
    };
    std::unique_ptr<void, Closed> library_;
    const char* (*difference_)(const void* caller) = nullptr;
    void* (*init_)() = nullptr;
    bool was_loaded_ = false;
};

std::string file_name(const Library& library) { return "libwinnow_ggml-" + library.name + ".so"; }

// What is said of a library that is not known to be right, "" of one that is.
std::string remark(const Candidate& candidate, const std::string& version, const std::vector<Version>& tested) {
    if (!candidate.is_exact)
        return "no library was built for ggml " + version + ", which this process has; " +
               file_name(candidate.library) +
               " is taken, because its layout is the same as far as can be seen. To have a library for this version, "
               "build Winnow with the source tree of this llama.cpp as WINNOW_LLAMA_CPP_DIR; "
               "WINNOW_GGML_STRICT=1 refuses other libraries";
    if (std::find(tested.begin(), tested.end(), parse_version(version)) == tested.end())
        return "Winnow was built for ggml " + version + ", which this process has, and was not tested with it";
    return "";
}

// What the library's initialisation returns; nothing, and the reason, where the library does not fit.
std::optional<void*> take(const HostLibrary& host, const void* caller, const std::string& version,
                          const Candidate& candidate, std::string& reason) {
    try {
        Loaded loaded(own_folder() / file_name(candidate.library));
        reason = loaded.difference(caller);
        if (!reason.empty()) return std::nullopt;
        const std::string said = remark(candidate, version, parse_versions(tested_text));
        if (!said.empty() && !loaded.was_loaded()) log(host, warning, said);
        return loaded.init();
    } catch (const std::runtime_error& failure) {
        reason = failure.what();
        return std::nullopt;
    }
}

void* initialise(const HostLibrary& host, const void* caller) {
    const std::string version = ggml_version(host);
    const std::optional<int> api = api_version(host);
    const bool refuses_others = is_strict();
    const std::filesystem::path folder = own_folder();

    std::vector<Library> libraries = parse_libraries(libraries_text);
    std::erase_if(libraries, [&](const Library& library) { return !exists(folder / file_name(library)); });
    std::string message = "this process has ggml " + version;
    if (api) message += " (API version " + std::to_string(*api) + ")";
    message += ", and no library in " + folder.string() + " fits";
    const char* before = "; the libraries there are for ggml ";
    for (const Library& library : libraries) message.append(std::exchange(before, ", ")).append(library.name);
    for (const Candidate& candidate : candidates(libraries, parse_version(version).value_or(Version{}), api)) {
        std::string reason = "it is not for this version, and WINNOW_GGML_STRICT=1";
        if (candidate.is_exact || !refuses_others) {
            if (const auto registration = take(host, caller, version, candidate, reason)) return *registration;
        }
        message.append("; ").append(file_name(candidate.library)).append(" is not taken: ").append(reason);
    }
    throw std::runtime_error(message + "; build Winnow with the source tree of this llama.cpp as WINNOW_LLAMA_CPP_DIR");
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
        winnow::ggml::log(host, winnow::ggml::error, failure.what());
        return nullptr;
    }
}
