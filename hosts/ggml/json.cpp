// JSON's strings.
#include "json.hpp"

#include <cstdio>

namespace winnow::ggml {

std::string quoted(const char* text) {
    std::string out = "\"";
    for (; *text; ++text) {
        const auto c = static_cast<unsigned char>(*text);
        if (c == '"' || c == '\\') {
            out += '\\';
            out += char(c);
        } else if (c < 0x20) {
            char escape[8];
            std::snprintf(escape, sizeof escape, "\\u%04x", unsigned(c));
            out += escape;
        } else {
            out += char(c);
        }
    }
    return out + '"';
}

} // namespace winnow::ggml
