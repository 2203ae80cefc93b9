// Lines of a name and three numbers; what follows a # is a comment.
#include "profile_file.hpp"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>

namespace winnow::ggml {

namespace {

// The value of a configuration's key, "" where it has none.
std::string value_of(const std::string& config, const std::string& key) {
    for (size_t begin = config.find(':'); begin < config.size();) {
        const size_t end = std::min(config.find(',', begin + 1), config.size());
        const std::string pair = config.substr(begin + 1, end - begin - 1);
        if (pair.compare(0, key.size() + 1, key + "=") == 0) return pair.substr(key.size() + 1);
        begin = end;
    }
    return "";
}

std::map<std::string, std::array<double, 3>> read(const std::string& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("profile_file: cannot read " + path + ": " + std::strerror(errno));
    std::map<std::string, std::array<double, 3>> found;
    std::string line;
    for (int number = 1; std::getline(file, line); ++number) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string name, more;
        if (!(words >> name)) continue;
        std::array<double, 3> numbers{};
        for (double& each : numbers) words >> each;
        if (!words || words >> more || !std::isfinite(numbers[0] + numbers[1] + numbers[2])) {
            throw std::runtime_error("profile_file: line " + std::to_string(number) + " of " + path + " is \"" + line +
                                     "\"; expected a layer's name, its entropy, concentration and variance");
        }
        found[name] = numbers;
    }
    return found;
}

} // namespace

std::vector<double> read_profile(const std::string& config, const std::vector<std::string>& layers) {
    const std::string path = value_of(config, "profile_file");
    std::vector<double> profile;
    if (path.empty()) return profile;
    const auto found = read(path);
    for (const std::string& layer : layers) {
        const auto at = found.find(layer);
        if (at == found.end()) {
            throw std::runtime_error("profile_file: " + path + " has " + std::to_string(found.size()) +
                                     " layers, and none that is called " + layer);
        }
        profile.insert(profile.end(), at->second.begin(), at->second.end());
    }
    return profile;
}

} // namespace winnow::ggml
