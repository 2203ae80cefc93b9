// Hidden units are the same for all heads but for their biases, so that the file stays small and can be read.
#include "network_file.hpp"

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <stdexcept>

#include <nlohmann/json.hpp>

namespace winnow::ggml {

namespace {

constexpr int64_t format = 1;
constexpr size_t hidden = 8;
constexpr double most = 1 << 20; // of a number's size, as the resource "network" has it

struct Unit {
    double importance, age, out;
};
using Biases = std::array<double, hidden>; // of a KV head

struct Networks {
    std::array<Unit, hidden> units;
    std::map<std::string, std::vector<Biases>> layers;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw std::runtime_error("network_file: " + path + " " + why);
}

template <size_t count>
std::array<double, count> numbers_of(const nlohmann::json& json, const std::string& path, const std::string& what) {
    std::array<double, count> numbers{};
    bool is_right = json.is_array() && json.size() == count;
    for (size_t i = 0; is_right && i < count; ++i) {
        is_right = json[i].is_number();
        if (is_right) numbers[i] = json[i].get<double>();
        is_right = is_right && std::fabs(numbers[i]) <= most;
    }
    if (!is_right)
        refuse(path,
               "has as " + what + " something else than " + std::to_string(count) + " numbers of at most 2^20 in size");
    return numbers;
}

Networks parse(const nlohmann::json& json, const std::string& path) {
    if (!json.is_object() || !json.contains("winnow_network"))
        refuse(path, "has no \"winnow_network\": it holds no networks; winnow calibrate writes them");
    if (json["winnow_network"] != format)
        refuse(path, "has version " + (json["winnow_network"].is_number() ? json["winnow_network"].dump() : "?") +
                         " of networks, expected " + std::to_string(format));
    const nlohmann::json units = json.value("hidden", nlohmann::json()),
                         layers = json.value("layers", nlohmann::json());
    if (!units.is_array() || units.size() != hidden)
        refuse(path, "has " + std::to_string(units.size()) + " hidden units, expected " + std::to_string(hidden));
    if (!layers.is_object()) refuse(path, "has no \"layers\"");
    Networks networks{};
    for (size_t i = 0; i < hidden; ++i) {
        const auto [importance, age, out] = numbers_of<3>(units[i], path, "hidden unit " + std::to_string(i));
        networks.units[i] = {importance, age, out};
    }
    for (const auto& [name, heads] : layers.items()) {
        if (!heads.is_array()) refuse(path, "has no biases of heads for layer " + name);
        for (const nlohmann::json& head : heads)
            networks.layers[name].push_back(numbers_of<hidden>(head, path, "biases of layer " + name));
    }
    return networks;
}

} // namespace

std::vector<double> read_network(const std::string& path, const std::vector<std::string>& layers, int64_t kv_heads) {
    if (path.empty())
        throw std::runtime_error("the policy learned needs network_file=FILE; winnow calibrate writes such a file");
    std::ifstream file(path);
    if (!file) throw std::runtime_error("network_file: cannot read " + path + ": " + std::strerror(errno));
    const nlohmann::json json = nlohmann::json::parse(file, nullptr, false);
    if (json.is_discarded()) refuse(path, "is not JSON");
    const Networks networks = parse(json, path);
    std::vector<double> all;
    for (const std::string& layer : layers) {
        const auto at = networks.layers.find(layer);
        if (at == networks.layers.end())
            refuse(path, "has " + std::to_string(networks.layers.size()) + " layers, and none that is called " + layer);
        if (static_cast<int64_t>(at->second.size()) != kv_heads)
            refuse(path, "has " + std::to_string(at->second.size()) + " KV heads in layer " + layer + ", expected " +
                             std::to_string(kv_heads));
        for (const Biases& biases : at->second)
            for (size_t i = 0; i < hidden; ++i) {
                const Unit& unit = networks.units[i];
                all.insert(all.end(), {unit.importance, unit.age, biases[i], unit.out});
            }
    }
    return all;
}

} // namespace winnow::ggml
