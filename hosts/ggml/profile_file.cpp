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
            throw std::runtime_error(
                std::string("profile_file: line ")
                    .append(std::to_string(number))
                    .append(" of ")
                    .append(path)
                    .append(" is \"")
                    .append(line)
                    .append("\"; expected a layer's name, its entropy, concentration and variance"));
        }
        found[name] = numbers;
    }
    return found;
}

} // namespace

std::vector<double> read_profile(const std::string& path, const std::vector<std::string>& layers) {
    std::vector<double> profile;
    if (path.empty()) return profile;
    const auto found = read(path);
    for (const std::string& layer : layers) {
        const auto at = found.find(layer);
        if (at == found.end()) {
            throw std::runtime_error(std::string("profile_file: ")
                                         .append(path)
                                         .append(" has ")
                                         .append(std::to_string(found.size()))
                                         .append(" layers, and none that is called ")
                                         .append(layer));
        }
        profile.insert(profile.end(), at->second.begin(), at->second.end());
    }
    return profile;
}

} // namespace winnow::ggml
