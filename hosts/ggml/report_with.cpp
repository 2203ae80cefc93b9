// A list of words.
#include "report_with.hpp"

#include <algorithm>
#include <array>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "environment.hpp"

namespace winnow::ggml {

namespace {

std::vector<std::string_view> words() {
    std::vector<std::string_view> all;
    for (std::string_view rest = variable("WINNOW_REPORT_WITH"); !rest.empty();) {
        const size_t end = rest.find(',');
        all.push_back(rest.substr(0, end));
        rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
    }
    return all;
}

} // namespace

bool reports(std::string_view word) {
    const std::vector<std::string_view> all = words();
    return std::find(all.begin(), all.end(), word) != all.end();
}

void check_report_with() {
    constexpr std::array<std::string_view, 4> known = {"resident", "profile", "samples", "whole_rows"};
    for (const std::string_view word : words())
        if (std::find(known.begin(), known.end(), word) == known.end())
            throw std::runtime_error("WINNOW_REPORT_WITH=" + std::string(variable("WINNOW_REPORT_WITH")) + ": \"" +
                                     std::string(word) + "\" is none of resident, profile, samples and whole_rows");
    if (reports("samples") && !reports("profile"))
        throw std::runtime_error("WINNOW_REPORT_WITH=samples: expected with profile, whose file has them");
    if (reports("whole_rows") && variable("WINNOW_REPORT_ROWS").empty())
        throw std::runtime_error(
            "WINNOW_REPORT_WITH=whole_rows: expected with WINNOW_REPORT_ROWS, whose file has them");
}

} // namespace winnow::ggml
