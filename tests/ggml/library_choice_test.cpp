// Which libraries are tried for a version of ggml, and in which order.
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>

#include "library_choice.hpp"

namespace {

using winnow::ggml::Candidate;
using winnow::ggml::candidates;
using winnow::ggml::parse_libraries;
using winnow::ggml::parse_version;
using winnow::ggml::Version;

void expect(bool condition, const std::string &text) {
    if (condition) return;
    std::fprintf(stderr, "FAILED: %s\n", text.c_str());
    std::exit(1);
}

constexpr const char *table = "0.25.3:2:0.25.3-0.25.3:0.25.3 0.20.0:2:0.20.0-0.21.0:0.20.0 "
                              "0.13.1:2:0.10.0-0.14.0:0.10.0,0.13.1 0.30.0:3:0.30.0-0.30.1:0.30.0 "
                              "0.26.0:3:0.26.0-0.26.0:0.26.0 1.0.0:6:1.0.0-1.0.0:1.0.0";

// `wanted` has the names with blanks between, "!" behind what is exact.
void expect_tried(const std::string &version, std::optional<int> api, const std::string &wanted) {
    std::string found;
    for (const Candidate &candidate : candidates(parse_libraries(table), parse_version(version).value(), api))
        found += (found.empty() ? "" : " ") + candidate.library.name + (candidate.is_exact ? "!" : "");
    expect(found == wanted, "for " + version + " these are tried: \"" + found + "\", expected \"" + wanted + "\"");
}

} // namespace

int main() {
    expect(parse_version("0.26.0") == Version{0, 26, 0}, "0.26.0 is read");
    expect(parse_version("1.2.33-dev") == Version{1, 2, 33}, "what is behind a version is left out");
    for (const char *text : {"", "1", "1.2", "1.2.", "a.b.c", "1,2,3"})
        expect(!parse_version(text), std::string(text) + " is no version");
    expect(Version{0, 9, 11} > Version{0, 9, 8} && Version{1, 0, 0} > Version{0, 99, 0}, "versions are ordered");

    expect_tried("0.13.1", 2, "0.13.1!");
    expect_tried("0.12.0", 2, "0.13.1"); // between two of one layout
    expect_tried("0.12.0", std::nullopt, "0.13.1");
    expect_tried("0.21.0", 2, "0.20.0");
    expect_tried("0.22.0", 2, ""); // where graph_optimize changed is not known
    expect_tried("0.25.0", 2, "");
    expect_tried("0.25.4", 2, "");
    expect_tried("0.26.0", 3, "0.26.0! 0.30.0");
    expect_tried("0.27.0", 3, "0.26.0 0.30.0");
    expect_tried("0.29.0", 3, "0.30.0 0.26.0");
    expect_tried("0.31.0", 3, "0.30.0 0.26.0");
    expect_tried("0.27.0", std::nullopt, "");
    expect_tried("0.26.0", 2, ""); // ggml would refuse another API version
    expect_tried("2.3.4", 6, "1.0.0");
    expect_tried("2.3.4", 7, "");
    expect(parse_libraries("").empty(), "no libraries");
    std::printf("libraries are tried in the order that was expected\n");
}
