// JSON in last_run.json.
#include "last_run.hpp"

#include <cstdlib>
#include <ctime>
#include <exception>
#include <fstream>

#include <nlohmann/json.hpp>

#include "whole_file.hpp"

namespace winnow::tools {

namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

constexpr const char* file_name = "last_run.json";

std::string now() {
    const std::time_t time = std::time(nullptr);
    std::tm parts{};
    gmtime_r(&time, &parts);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", &parts);
    return text;
}

} // namespace

// As the OpenCL backend has it (ProgramCache::default_directory).
fs::path cache_folder() {
    for (const auto& [variable, folder] : {std::pair{"XDG_CACHE_HOME", "winnow"}, std::pair{"HOME", ".cache/winnow"}}) {
        const char* const named = std::getenv(variable);
        if (named && named[0] == '/') return fs::path(named) / folder;
    }
    return {};
}

void keep_last_run(const Run& run, const Outcome& outcome) {
    try {
        if (cache_folder().empty()) return;
        fs::create_directories(cache_folder());
        const ordered_json kept{{"time", now()},
                                {"program", fs::path(run.command.front()).filename().string()},
                                {"status", run.ended.status},
                                {"called", outcome.called},
                                {"line", outcome.line},
                                {"cure", outcome.cure}};
        write_file(cache_folder() / file_name, kept.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n");
    } catch (const std::exception&) { // the run was what was wanted
    }
}

std::optional<LastRun> read_last_run() {
    const fs::path folder = cache_folder();
    if (folder.empty()) return std::nullopt;
    std::ifstream file(folder / file_name);
    const ordered_json kept = ordered_json::parse(file, nullptr, false);
    if (!kept.is_object()) return std::nullopt;
    try {
        return LastRun{kept.at("time"), kept.at("program"), {kept.at("called"), kept.at("line"), kept.at("cure")}};
    } catch (const std::exception&) {
        return std::nullopt;
    }
}

} // namespace winnow::tools
