// Going from one key=value to the next.
#include "canonical_config.hpp"

#include <algorithm>

namespace winnow::ggml {

std::optional<ValueRange> find_value(const std::string& config, const std::string& key) {
    const std::string wanted = key + "=";
    for (size_t at = config.find(':'); at != std::string::npos; at = config.find(',', at + 1)) {
        if (config.compare(at + 1, wanted.size(), wanted) != 0) continue;
        const size_t begin = at + 1 + wanted.size();
        return ValueRange{begin, std::min(config.find(',', begin), config.size()) - begin};
    }
    return std::nullopt;
}

std::string value_of(const std::string& config, const std::string& key) {
    const std::optional<ValueRange> value = find_value(config, key);
    return value ? config.substr(value->begin, value->size) : "";
}

std::string without_budget(const std::string& config) {
    const std::string key = "budget";
    const std::optional<ValueRange> budget = find_value(config, key);
    if (!budget) return config;
    const size_t separator = budget->begin - key.size() - 2, end = budget->begin + budget->size;
    std::string rest = config.substr(end);
    if (!rest.empty()) rest.front() = config[separator];
    return config.substr(0, separator) + rest;
}

} // namespace winnow::ggml
