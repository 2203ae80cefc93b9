// Files of JSON.
#include "json_file.hpp"

#include <cerrno>
#include <cstring>
#include <fstream>
#include <stdexcept>

namespace winnow::bench {

nlohmann::json read_json(const std::filesystem::path& path) {
    std::ifstream file(path);
    if (!file) throw std::runtime_error("cannot read " + path.string() + ": " + std::strerror(errno));
    try {
        return nlohmann::json::parse(file);
    } catch (const std::exception& error) { // of JSON, or of reading: a folder opens as a file does
        throw std::runtime_error(path.string() + " is not JSON: " + error.what());
    }
}

} // namespace winnow::bench
