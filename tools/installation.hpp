// Where the files of this installation are: relative to this program, in a build tree as after an install.
#pragma once

#include <filesystem>
#include <iosfwd>
#include <string>
#include <vector>

namespace winnow::tools {

// The plugin for llama.cpp.
constexpr const char* plugin_name = "libwinnow_ggml.so";

// Of this program.
std::filesystem::path own_folder();

// Where an installation and a build tree have libwinnow_ggml.so.
std::vector<std::filesystem::path> plugin_folders();

// libwinnow_ggml.so in a folder of WINNOW_PATH, else in this installation. Throws std::runtime_error, which says what
// to do, where there is none.
std::filesystem::path find_plugin();

// `winnow path`: prints where `what` is: ggml, library, include or cmake. Throws std::runtime_error where this
// installation has none.
void print_path(const std::string& what, std::ostream& out);

} // namespace winnow::tools
