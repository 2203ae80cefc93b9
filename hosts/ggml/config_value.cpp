// A configuration is "policy:key=value,key=value".
#include "config_value.hpp"

#include <algorithm>

namespace winnow::ggml {

std::string value_of(const std::string& config, std::string_view key) {
    for (size_t begin = config.find(':'); begin < config.size();) {
        const size_t end = std::min(config.find(',', begin + 1), config.size());
        const std::string_view pair = std::string_view(config).substr(begin + 1, end - begin - 1);
        const size_t equals = pair.find('=');
        if (equals != std::string_view::npos && pair.substr(0, equals) == key) {
            return std::string(pair.substr(equals + 1));
        }
        begin = end;
    }
    return "";
}

} // namespace winnow::ggml
