// Which of the libraries beside libwinnow_ggml.so may serve a version of ggml, and which of them is tried first.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::ggml {

using Version = std::array<int, 3>; // major, minor, patch

// "0.26.0", also with something behind it, as "0.26.0-dev"; nothing where a text has no such beginning.
std::optional<Version> parse_version(std::string_view text);
std::vector<Version> parse_versions(std::string_view text); // with commas between

struct Library {
    std::string name; // of libwinnow_ggml-<name>.so
    int api_version = 0;
    Version from, to;              // the first and the last version that is known to have its layout
    std::vector<Version> versions; // it was compiled for, or tested with
};

// "name:API version:from-to:version,version", with blanks between libraries.
std::vector<Library> parse_libraries(std::string_view text);

// Up to this API version ggml changed graph_optimize, which no layout check can see, and kept the number.
constexpr int silent_api_version = 2;

struct Candidate {
    Library library;
    bool is_exact; // compiled for the version, or tested with it
};

// The libraries of the process's API version, where that is known, that may fit: those that are exact, then the nearest
// first. Under silent_api_version, or where it is unknown, only those with versions on both sides of the process's.
std::vector<Candidate> candidates(const std::vector<Library>& libraries, const Version& version,
                                  std::optional<int> api_version);

} // namespace winnow::ggml
