// Variables of the environment by which a user tells the plugin something.
#pragma once

#include <cstdlib>
#include <locale>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unistd.h>

namespace winnow::ggml {

// "" where it is not set.
inline std::string_view variable(const char* name) {
    const char* text = std::getenv(name);
    return text ? text : "";
}

// The path of a file that is written, "" where it is not set: %p in it is the number of the process, of which a server
// may start several with one environment, and %% is %.
inline std::string path_in(const char* name) {
    std::string path;
    for (std::string_view rest = variable(name); !rest.empty();) {
        const std::string_view two = rest.substr(0, 2);
        if (two == "%p")
            path += std::to_string(getpid());
        else
            path += rest[0];
        rest.remove_prefix(two == "%p" || two == "%%" ? 2 : 1);
    }
    return path;
}

// Nothing where it is not set. Throws std::runtime_error, with what was `expected`, where it is no number from least to
// most.
template <typename Number>
std::optional<Number> number_of(const char* name, Number least, Number most, const char* expected) {
    const std::string_view given = variable(name);
    if (given.empty()) return std::nullopt;
    // By a stream, since not every C++ library has a from_chars of real numbers; some streams take hexadecimal ones.
    std::istringstream stream{std::string(given)};
    stream.imbue(std::locale::classic());
    Number number{};
    stream >> std::noskipws >> number;
    if (given.find_first_not_of("0123456789.eE-") != std::string_view::npos || !stream ||
        stream.peek() != std::istringstream::traits_type::eof() || !(number >= least && number <= most))
        throw std::runtime_error(std::string(name) + "=" + std::string(given) + ": expected " + expected);
    return number;
}

} // namespace winnow::ggml
