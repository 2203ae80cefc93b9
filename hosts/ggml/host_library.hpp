// The library that called us, and what it depends on: where a symbol of the host is looked for, then in the global
// scope. A process may hold two copies of ggml; the caller's is ours.
#pragma once

#include <dlfcn.h>

namespace winnow::ggml {

class HostLibrary {
public:
    // An address inside the library, as that from which a function was called.
    explicit HostLibrary(const void* caller) {
        Dl_info info{};
        if (dladdr(caller, &info) && info.dli_fname) library_ = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    }
    ~HostLibrary() {
        if (library_) dlclose(library_);
    }
    HostLibrary(const HostLibrary&) = delete;
    HostLibrary& operator=(const HostLibrary&) = delete;

    // Sets a pointer to the host's function of this name, to NULL where there is none; says whether there is.
    template <typename Function>
    bool find(const char* name, Function& function) const {
        void* symbol = library_ ? dlsym(library_, name) : nullptr;
        if (!symbol) symbol = dlsym(RTLD_DEFAULT, name);
        function = reinterpret_cast<Function>(symbol);
        return symbol != nullptr;
    }

private:
    void* library_ = nullptr;
};

} // namespace winnow::ggml
