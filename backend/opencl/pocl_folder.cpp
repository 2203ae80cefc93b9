// Tries folders by writing a file.
#include "opencl/pocl_folder.hpp"

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string_view>
#include <system_error>

namespace winnow::opencl {
namespace {

namespace fs = std::filesystem;

constexpr const char* variable = "POCL_CACHE_DIR";
constexpr std::string_view prefix = "winnow-pocl-"; // of the names of own folders

std::string prefix_of_this_process() { return std::string(prefix) + std::to_string(::getpid()) + "-"; }

// As PoCL has it.
fs::path usual_folder() {
    if (const char* folder = std::getenv(variable); folder != nullptr && folder[0] != '\0') return folder;
    if (const char* folder = std::getenv("XDG_CACHE_HOME")) return fs::path(folder) / "pocl/kcache";
    if (const char* folder = std::getenv("HOME")) return fs::path(folder) / ".cache/pocl/kcache";
    return "/tmp/pocl/kcache";
}

std::string system_text(int code) { return std::error_code(code, std::generic_category()).message(); }

// Why PoCL cannot use a folder, which is made where it is missing; "" if it can.
std::string trouble_with(const fs::path& folder) {
    fs::path made;
    int failure = 0;
    for (const fs::path& part : folder) {
        made /= part;
        failure = ::mkdir(made.c_str(), S_IRWXU) == 0 || errno == EEXIST ? 0 : errno;
    }
    struct statvfs system {};
    if (::statvfs(folder.c_str(), &system) != 0) return system_text(failure != 0 ? failure : errno);
    if ((system.f_flag & ST_NOEXEC) != 0) return "no code can be loaded from there (mounted noexec)";
    std::string file = folder / ".winnow-XXXXXX";
    const int descriptor = ::mkstemp(file.data());
    if (descriptor < 0) return system_text(errno);
    ::close(descriptor);
    ::unlink(file.c_str());
    return {};
}

// A folder of this process, which goes with it, and not with a process that was forked from it.
class OwnFolder {
public:
    OwnFolder() = default;
    ~OwnFolder() {
        std::error_code ignored;
        if (!path_.empty() && ::getpid() == process_) fs::remove_all(path_, ignored);
    }
    OwnFolder(const OwnFolder&) = delete;
    OwnFolder& operator=(const OwnFolder&) = delete;

    // Whether one could be made in `parent` that PoCL can use.
    bool make_in(const fs::path& parent) {
        std::string made = parent / (prefix_of_this_process() + "XXXXXX");
        return ::mkdtemp(made.data()) != nullptr && keep(made);
    }
    // Whether `path` is one of this process that went when this library was closed, and could be made again.
    bool make_again(const fs::path& path) {
        return path.filename().native().starts_with(prefix_of_this_process()) && ::mkdir(path.c_str(), S_IRWXU) == 0 &&
               keep(path);
    }
    const fs::path& path() const { return path_; }

private:
    bool keep(const fs::path& made) {
        if (!trouble_with(made).empty()) {
            ::rmdir(made.c_str());
            return false;
        }
        path_ = made;
        process_ = ::getpid();
        return true;
    }

    fs::path path_;
    pid_t process_ = 0;
};

} // namespace

std::string make_pocl_folder_usable(const Log& log) {
    static OwnFolder own;
    const fs::path usual = usual_folder();
    if (own.make_again(usual)) return {}; // PoCL reads the variable once, and has this folder as long as it is loaded
    // A process that this one was started by has its variable for this one, too, and removes the folder as it ends.
    const bool is_anothers = usual != own.path() && usual.filename().native().starts_with(prefix);
    const std::string trouble = is_anothers ? "another process removes it when that ends" : trouble_with(usual);
    if (trouble.empty()) return {};
    const std::string text = "PoCL cannot use its folder for compiled kernels, \"" + usual.string() + "\": " + trouble;
    const char* const temporary = std::getenv("TMPDIR");
    for (const fs::path& parent :
         {fs::path("/dev/shm"), fs::path(temporary != nullptr ? temporary : ""), fs::path("/tmp")})
        if (!parent.empty() && own.make_in(parent)) break;
    const std::string advice = "set POCL_CACHE_DIR to a folder that can be written";
    if (own.path().empty() || ::setenv(variable, own.path().c_str(), 1) != 0)
        return text + ", and neither /dev/shm, TMPDIR nor /tmp has room for another; " + advice;
    log(WINNOW_LOG_WARNING,
        text + "; until this process ends it has \"" + own.path().string() + "\" instead; " + advice + " to keep them");
    return {};
}

} // namespace winnow::opencl
