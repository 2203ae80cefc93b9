// The grammar of `winnow eval`, which a test holds this to, and ggml's types.
#include "configuration.hpp"

#include <map>
#include <set>
#include <stdexcept>

namespace winnow::tools {

namespace {

struct Blocks {
    int64_t elements;
    uint64_t bytes;
};

// ggml's, as hosts/ggml/README.md lists them.
const std::map<std::string, Blocks> types = {
    {"f32", {1, 4}},    {"f16", {1, 2}},    {"bf16", {1, 2}},   {"q8_0", {32, 34}},   {"q5_1", {32, 24}},
    {"q5_0", {32, 22}}, {"q4_1", {32, 20}}, {"q4_0", {32, 18}}, {"iq4_nl", {32, 18}},
};

std::string known_types() {
    std::string all;
    for (const auto& each : types) all.append(all.empty() ? "" : ", ").append(each.first);
    return all;
}

} // namespace

Configuration parse_configuration(const std::string& text) {
    Configuration found;
    const size_t colon = text.find(':');
    const std::string head = text.substr(0, colon);
    if (head != "cpu" && head != "inplace") {
        if (text.empty()) throw std::runtime_error("an empty configuration, expected for example winnow:budget=1/4");
        if (text.starts_with('[')) {
            throw std::runtime_error("\"" + text + "\" has rules for several caches, expected one configuration");
        }
        found.name = found.kv = text;
        return found;
    }
    found.where = head == "cpu" ? Configuration::Where::cpu : Configuration::Where::in_place;
    const auto refuse = [&](const std::string& what) {
        throw std::runtime_error("configuration \"" + text + "\": " + what);
    };
    std::set<std::string> seen;
    for (size_t at = colon; at != std::string::npos;) {
        const size_t end = text.find(',', at + 1);
        const std::string part = text.substr(at + 1, end == std::string::npos ? end : end - at - 1);
        at = end;
        const size_t equals = part.find('=');
        const std::string key = part.substr(0, equals),
                          value = equals == std::string::npos ? "" : part.substr(equals + 1);
        if (key != "k" && key != "v" && key != "rotate") refuse("\"" + part + "\", expected k=, v= or rotate=");
        if (!seen.insert(key).second) refuse(key + " is given twice");
        if (key == "rotate") {
            if (value != "on" && value != "off") refuse("rotate=" + value + ", expected on or off");
            found.rotates = value == "on";
        } else {
            if (!types.count(value)) refuse(part + ", expected one of " + known_types());
            (key == "k" ? found.k : found.v) = value;
        }
    }
    found.name = head + ":k=" + found.k + ",v=" + found.v + (found.rotates ? "" : ",rotate=off");
    return found;
}

uint64_t bytes_of_head(const std::string& type, int64_t elements) {
    const Blocks& blocks = types.at(type);
    if (elements % blocks.elements != 0) {
        throw std::runtime_error(type + " needs heads of a multiple of " + std::to_string(blocks.elements) +
                                 " elements, and they have " + std::to_string(elements));
    }
    return static_cast<uint64_t>(elements / blocks.elements) * blocks.bytes;
}

} // namespace winnow::tools
