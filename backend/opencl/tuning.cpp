// Reading the user's file.
#include "opencl/tuning.hpp"

#include <cstdlib>
#include <fstream>
#include <string_view>

#include <nlohmann/json.hpp>

namespace winnow::opencl {
namespace {

constexpr int64_t format = 1;

[[noreturn]] void refuse(const std::filesystem::path& file, const std::string& why) {
    throw Error(WINNOW_ERROR_INVALID_ARGUMENT,
                "tuning: " + file.string() + " " + why + "; winnow tune writes it, WINNOW_TUNING=off passes it over");
}

template <class Number>
std::optional<Number> number_in(const nlohmann::json& entry, const char* key, Number most,
                                const std::filesystem::path& file) {
    const auto found = entry.find(key);
    if (found == entry.end()) return std::nullopt;
    if (!found->is_number_unsigned() || found->get<uint64_t>() < 1 || found->get<uint64_t>() > most)
        refuse(file, std::string("has ") + key + " " + found->dump() + ", expected a number from 1 to " +
                         std::to_string(most));
    return found->get<Number>();
}

std::string text_in(const nlohmann::json& entry, const char* key, const std::filesystem::path& file) {
    const auto found = entry.find(key);
    if (found == entry.end() || !found->is_string())
        refuse(file, std::string("has an entry without \"") + key + "\", expected a text");
    return found->get<std::string>();
}

nlohmann::json read_json(const std::filesystem::path& file) {
    std::ifstream stream(file);
    if (!stream) refuse(file, "cannot be read");
    try {
        return nlohmann::json::parse(stream);
    } catch (const std::exception& error) { // of JSON, or of reading: a folder opens as a file does
        refuse(file, std::string("cannot be read as JSON: ") + error.what());
    }
}

} // namespace

void TuningChanges::apply(Tuning& tuning) const {
    tuning.group_overhead = group_overhead.value_or(tuning.group_overhead);
    tuning.divided_work = divided_work.value_or(tuning.divided_work);
    tuning.groups = groups.value_or(tuning.groups);
}

std::optional<std::filesystem::path> tuning_file() {
    if (const char* given = std::getenv("WINNOW_TUNING"); given != nullptr && given[0] != '\0') {
        if (std::string_view(given) == "off") return std::nullopt;
        return given;
    }
    std::filesystem::path folder;
    const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
    if (config != nullptr && config[0] == '/')
        folder = config;
    else if (home != nullptr && home[0] == '/')
        folder = std::filesystem::path(home) / ".config";
    else
        return std::nullopt;
    std::filesystem::path file = folder / "winnow" / "tuning.json";
    std::error_code failed;
    if (!std::filesystem::exists(file, failed)) return std::nullopt;
    return file;
}

TuningChanges tuning_in(const std::filesystem::path& file, const winnow_device_info& device) {
    const nlohmann::json json = read_json(file);
    const nlohmann::json version = json.is_object() ? json.value("winnow_tuning", nlohmann::json()) : nlohmann::json();
    if (version != format)
        refuse(file, "has \"winnow_tuning\" " + version.dump() + ", expected " + std::to_string(format));
    const nlohmann::json devices = json.value("devices", nlohmann::json());
    if (!devices.is_array()) refuse(file, "has no list \"devices\"");
    TuningChanges changes;
    for (const nlohmann::json& entry : devices) {
        if (!entry.is_object()) refuse(file, "has a device that is no object: " + entry.dump());
        const bool is_it = text_in(entry, "device", file) == device.name &&
                           text_in(entry, "platform", file) == device.platform &&
                           text_in(entry, "driver", file) == device.driver_version;
        const TuningChanges its{number_in(entry, "group_overhead", most_group_overhead, file),
                                number_in(entry, "divided_work", most_divided_work, file),
                                number_in(entry, "groups", most_groups_of_unit, file)};
        if (is_it) changes = its;
    }
    return changes;
}

Tuning tuning_of(const winnow_device_info& device, const TuningChanges& forced, const Log& log) {
    Tuning tuning;
    if (const std::optional<std::filesystem::path> file = tuning_file()) {
        const TuningChanges changes = tuning_in(*file, device);
        changes.apply(tuning);
        const bool says_something = changes != TuningChanges{};
        log(WINNOW_LOG_INFO,
            "tuning: " + file->string() + (says_something ? " is taken" : " says nothing of this device and driver"));
    }
    forced.apply(tuning);
    return tuning;
}

} // namespace winnow::opencl
