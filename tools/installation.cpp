// Folders from this program on, as CMake installs them.
#include "installation.hpp"

#include <ostream>
#include <sstream>
#include <stdexcept>

#include "environment_check.hpp"
#include "open_backend.hpp"

namespace winnow::tools {

namespace fs = std::filesystem;

namespace {

constexpr const char* plugin_name = "libwinnow_ggml.so";

// The backend that WINNOW_BACKEND or the default names, as its loader finds it.
fs::path library() {
    const fs::path path = OpenBackend("").path();
    return fs::exists(path) ? fs::canonical(path) : path; // a bare name where the system has found it
}

fs::path installed(const char* folder, const char* file, const char* missing) {
    fs::path path = (own_folder() / folder).lexically_normal();
    if (fs::exists(path / file)) return path;
    throw std::runtime_error("no " + (path / file).string() + ": " + missing);
}

} // namespace

fs::path own_folder() { return fs::read_symlink("/proc/self/exe").parent_path(); }

std::vector<fs::path> plugin_folders() {
    return {(own_folder() / WINNOW_LIBRARY_FOLDER).lexically_normal(), (own_folder() / "../lib").lexically_normal()};
}

fs::path find_plugin() {
    std::vector<fs::path> folders;
    std::istringstream list(variable("WINNOW_PATH"));
    for (std::string folder; std::getline(list, folder, ':');)
        if (!folder.empty()) folders.emplace_back(folder);
    for (const fs::path& folder : plugin_folders()) folders.push_back(folder);
    for (const fs::path& folder : folders)
        if (fs::exists(folder / plugin_name)) return fs::canonical(folder / plugin_name);
    throw std::runtime_error(std::string("this installation has no ") + plugin_name +
                             ", the plugin for llama.cpp, in " + plugin_folders().front().string() +
                             ": it was built without ggml plugins. ci/wheel builds a wheel with them; a build of one's "
                             "own has them with -DWINNOW_LLAMA_CPP_DIR=<source tree of llama.cpp>");
}

fs::path chosen_plugin() {
    const std::string named = variable("GGML_BACKEND_PATH");
    if (named.empty()) return find_plugin();
    const std::string said = "GGML_BACKEND_PATH=" + named;
    if (fs::path(named).filename() != plugin_name)
        throw std::runtime_error(said +
                                 " names another plugin, and llama.cpp loads one in this way: expected it unset");
    std::error_code unknown; // such a file counts as none
    if (!fs::exists(named, unknown)) throw std::runtime_error(said + ": there is no such file");
    return named;
}

void print_path(const std::string& what, std::ostream& out) {
    fs::path path;
    if (what == "ggml") path = find_plugin();
    if (what == "library") path = library();
    if (what == "include")
        path = installed(WINNOW_INCLUDE_FOLDER, "winnow.h",
                         "headers are a part of an installation; a source tree has "
                         "them in plugin_api");
    if (what == "cmake")
        path = installed(WINNOW_CMAKE_FOLDER, "winnow-config.cmake",
                         "a CMake package is a part of an installation; "
                         "cmake --install makes one");
    out << path.string() << '\n';
}

} // namespace winnow::tools
