// Starting the subcommands that are Python programs, whose files are found relative to this executable, in a build tree
// as after an install.
#include "python_programs.hpp"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <unistd.h>
#include <vector>

#include "installation.hpp"

namespace winnow::tools {
namespace {

namespace fs = std::filesystem;

// launch.py of a folder of this installation.
fs::path launcher_in(const char* folder) { return (own_folder() / folder / "launch.py").lexically_normal(); }

[[noreturn]] void become(const fs::path& launcher, int argc, char** argv) {
    const std::string name = argv[0];
    // Where the plugin for llama.cpp is looked for if the command line names none.
    std::string folders;
    for (const fs::path& folder : plugin_folders()) folders.append(folders.empty() ? "" : ":").append(folder);
    setenv("WINNOW_PLUGIN_FOLDERS", folders.c_str(), 1);

    std::string python = "python3", script = launcher.string();
    std::vector<char*> command{python.data(), script.data()};
    command.insert(command.end(), argv, argv + argc);
    command.push_back(nullptr);
    execvp(command[0], command.data());
    throw std::runtime_error(name + ": cannot start python3, which it needs: " + std::strerror(errno));
}

} // namespace

void run_calibrate(int argc, char** argv) {
    const fs::path launcher = launcher_in(WINNOW_CALIBRATE_FOLDER);
    if (!fs::exists(launcher))
        throw std::runtime_error(std::string(argv[0]) + ": there is no file " + launcher.string() +
                                 "; install Winnow again");
    become(launcher, argc, argv);
}

void run_lab(int argc, char** argv) {
    const fs::path launcher = launcher_in(WINNOW_LAB_FOLDER);
    if (!fs::exists(launcher))
        throw std::runtime_error(std::string(argv[0]) +
                                 " is a part of the lab, which this installation does not have: there is no file " +
                                 launcher.string() +
                                 ". Install Debian's package winnow-lab, or build Winnow with -DWINNOW_BUILD_LAB=ON "
                                 "from a source tree that has the folder lab");
    setenv("WINNOW_EVAL_MEASURE", (own_folder() / "winnow-measure").c_str(), 1);
    become(launcher, argc, argv);
}

} // namespace winnow::tools
