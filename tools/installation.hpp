// Where the files of this installation are: relative to this program, in a build tree as after an install.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace winnow::tools {

// Of this program.
std::filesystem::path own_folder();

// Where an installation and a build tree have libwinnow_ggml.so.
std::vector<std::filesystem::path> plugin_folders();

// libwinnow_ggml.so in a folder of WINNOW_PATH, else in this installation. Throws std::runtime_error, which says what
// to do, where there is none.
std::filesystem::path find_plugin();

// The plugin that GGML_BACKEND_PATH names, else that of find_plugin. Throws std::runtime_error where the variable names
// something else.
std::filesystem::path chosen_plugin();

// `winnow path`: prints where `what` is: ggml, library, include or cmake. Throws std::runtime_error where this
// installation has none.
void print_path(const std::string& what, std::ostream& out);

} // namespace winnow::tools
