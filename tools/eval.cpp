// Starting `winnow eval` and what belongs to it (`winnow profile`, `winnow calibrate`, `winnow allocate`), whose files
// are found relative to this executable, in a build tree as after an install.
#include "eval.hpp"

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

namespace fs = std::filesystem;

void run_eval(int argc, char** argv) {
    const fs::path here = own_folder();
    const fs::path launcher = (here / WINNOW_EVAL_FOLDER / "launch.py").lexically_normal();
    if (!fs::exists(launcher)) {
        throw std::runtime_error("eval: there is no file " + launcher.string() +
                                 ". The Python package does not have it; the package winnow-tools and a build from "
                                 "source do");
    }
    // Where the plugin for llama.cpp is looked for if the command line names none.
    std::string libraries;
    for (const fs::path& folder : plugin_folders()) libraries.append(libraries.empty() ? "" : ":").append(folder);
    setenv("WINNOW_EVAL_LIBRARIES", libraries.c_str(), 1);

    setenv("WINNOW_EVAL_MEASURE", (here / "winnow-measure").c_str(), 1);

    std::string python = "python3", script = launcher.string();
    std::vector<char*> command{python.data(), script.data()};
    command.insert(command.end(), argv, argv + argc);
    command.push_back(nullptr);
    execvp(command[0], command.data());
    throw std::runtime_error("eval: cannot start python3, which it needs: " + std::string(std::strerror(errno)));
}

} // namespace winnow::tools
