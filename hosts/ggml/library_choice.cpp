// Reading the table of libraries, and ordering it.
#include "library_choice.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>

namespace winnow::ggml {

namespace {

// The text before a separator, which is taken away from `rest`; all of it where there is none.
std::string_view next(std::string_view& rest, char separator) {
    const size_t end = std::min(rest.find(separator), rest.size());
    const std::string_view text = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    return text;
}

// Versions from one to another, a patch being 1: 0 where it lies between them.
long distance(const Library& library, const Version& version) {
    constexpr long most = 1000; // patches of a minor version
    const auto place = [](const Version& of) { return (of[0] * most + of[1]) * most + of[2]; };
    if (version < library.from) return place(library.from) - place(version);
    if (version > library.to) return place(version) - place(library.to);
    return 0;
}

} // namespace

std::optional<Version> parse_version(std::string_view text) {
    Version version{};
    for (size_t i = 0; i < version.size(); ++i) {
        if (i > 0) {
            if (text.empty() || text[0] != '.') return std::nullopt;
            text.remove_prefix(1);
        }
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version.at(i));
        if (error != std::errc{}) return std::nullopt;
        text.remove_prefix(static_cast<size_t>(end - text.data()));
    }
    return version;
}

std::vector<Version> parse_versions(std::string_view text) {
    std::vector<Version> versions;
    while (!text.empty()) versions.push_back(parse_version(next(text, ',')).value_or(Version{}));
    return versions;
}

std::vector<Library> parse_libraries(std::string_view text) {
    std::vector<Library> libraries;
    while (!text.empty()) {
        std::string_view entry = next(text, ' ');
        Library library;
        library.name = next(entry, ':');
        library.api_version = std::atoi(std::string(next(entry, ':')).c_str());
        library.from = parse_version(next(entry, '-')).value_or(Version{});
        library.to = parse_version(next(entry, ':')).value_or(Version{});
        library.versions = parse_versions(entry);
        libraries.push_back(library);
    }
    return libraries;
}

std::vector<Candidate> candidates(const std::vector<Library>& libraries, const Version& version,
                                  std::optional<int> api_version) {
    std::vector<Candidate> found;
    for (const Library& library : libraries) {
        if (api_version && *api_version != library.api_version) continue;
        const bool is_exact =
            std::find(library.versions.begin(), library.versions.end(), version) != library.versions.end();
        const bool is_between = distance(library, version) == 0;
        const bool is_told_by_api = api_version && *api_version > silent_api_version;
        if (is_exact || is_between || is_told_by_api) found.push_back({library, is_exact});
    }
    std::stable_sort(found.begin(), found.end(), [&](const Candidate& a, const Candidate& b) {
        if (a.is_exact != b.is_exact) return a.is_exact;
        return distance(a.library, version) < distance(b.library, version);
    });
    return found;
}

} // namespace winnow::ggml
