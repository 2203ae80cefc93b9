// From the first thing that went wrong on the way of a call: the plugin is loaded, refuses or not, is chosen, computes.
#include "run_outcome.hpp"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <filesystem>
#include <map>
#include <sstream>

#include <nlohmann/json.hpp>

namespace winnow::tools {

namespace {

using nlohmann::json;

void add_once(std::vector<std::string>& all, const std::string& text) {
    if (std::find(all.begin(), all.end(), text) == all.end()) all.push_back(text);
}

std::string joined(const std::vector<std::string>& all) {
    std::string text;
    for (const std::string& each : all) text.append(text.empty() ? "" : ", ").append(each);
    return text;
}

// A report counts all contexts of its process that ended until then.
void add_report(RunNotes& notes, const json& report) {
    notes.attention_calls += report.value("attention_calls", uint64_t{0});
    notes.graphs += report.value("graphs", uint64_t{0});
    for (const json& device : report.value("devices", json::array())) add_once(notes.devices, device.value("name", ""));
    for (const json& cache : report.value("caches", json::array())) {
        notes.cache_bytes += cache.value("bytes", uint64_t{0});
        add_once(notes.configs, cache.value("config", ""));
    }
    for (const json& cache : report.value("in_place", json::array()))
        add_once(notes.in_place, cache.value("name", "") + ": " + cache.value("reason", ""));
}

std::string counted(uint64_t count, const char* what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

std::string readable(uint64_t bytes) {
    constexpr uint64_t mib = 1 << 20;
    const bool is_small = bytes < mib;
    char text[32];
    std::snprintf(text, sizeof text, "%.1f %s", static_cast<double>(bytes) / (is_small ? 1 << 10 : mib),
                  is_small ? "KiB" : "MiB");
    return text;
}

// "ended with status 1", "was killed by signal 9".
std::string end_of(const Ended& ended) {
    if (ended.signal != 0) return "was killed by signal " + std::to_string(ended.signal);
    return "ended with status " + std::to_string(ended.status);
}

std::string name_of(const Run& run) { return std::filesystem::path(run.command.front()).filename().string(); }

std::string lower(std::string text) {
    for (char& each : text) each = static_cast<char>(std::tolower(static_cast<unsigned char>(each)));
    return text;
}

bool is_off(const std::string& attention) {
    const std::string value = lower(attention);
    return value == "off" || value == "0" || value == "false" || value == "disabled";
}

Outcome of_call(const Run& run) {
    const RunNotes& notes = run.notes;
    const std::string where = notes.devices.empty() ? "" : " on " + joined(notes.devices);
    if (notes.attention_calls == 0)
        return {true,
                "called for attention" + where + "; " + name_of(run) + " " + end_of(run.ended) +
                    " before it freed its context, so that the calls were not counted",
                ""};
    const std::string least = notes.has_uncounted ? "at least " : "";
    Outcome outcome{true,
                    "called " + least + counted(notes.attention_calls, "time") + " for attention in " + least +
                        counted(notes.graphs, "graph") + where,
                    ""};
    if (!notes.configs.empty())
        outcome.line += ", cache " + least + readable(notes.cache_bytes) + " (" + joined(notes.configs) + ")";
    else if (!notes.has_uncounted)
        outcome.line += ", cache in place, as llama.cpp stores it";
    if (notes.has_uncounted)
        outcome.line += "; a process ended before it freed its context, so that its calls were not counted";
    if (!notes.in_place.empty()) outcome.cure = "a cache stayed in place: " + notes.in_place.front();
    return outcome;
}

// The first error that is a reason not to call Winnow, "" for none: one of a file that could not be written is none.
std::string refusal_among(const std::vector<std::string>& errors) {
    const auto found = std::find_if(errors.begin(), errors.end(), [](const std::string& error) {
        return !error.starts_with("WINNOW_REPORT: ") && !error.starts_with("no report") &&
               !error.starts_with("WINNOW_TRACE: ");
    });
    return found == errors.end() ? "" : *found;
}

// An error of the plugin names what it expected.
Outcome of_refusal(const std::string& error) {
    const bool is_about_caches = error.find("WINNOW_KV") != std::string::npos;
    return {false, "not called: " + error,
            is_about_caches ? "or leave the cache in place, as llama.cpp stores it: winnow run --in-place"
                            : "winnow doctor checks drivers, devices and folders"};
}

Outcome of_program_without_plugin(const Run& run) {
    const std::string name = name_of(run);
    Outcome outcome{false, "not called: " + name + " never loaded the plugin", ""};
    if (run.ended.status != 0) {
        outcome.line += " and " + end_of(run.ended);
        outcome.cure = "its messages above say why";
    } else if (lower(name).starts_with("python"))
        outcome.cure = "a program in Python loads the plugin itself: winnowkv.llama_cpp.enable() does it for "
                       "llama-cpp-python";
    else
        outcome.cure =
            "a program loads it if it is llama.cpp's or calls ggml_backend_load_all, and ggml's functions are "
            "visible in it: a static build hides them (hosts/ggml/README.md lists programs)";
    return outcome;
}

Outcome of_unused_plugin(const Run& run) {
    const std::string name = name_of(run);
    Outcome outcome{false, "not called: " + name + " loaded the plugin and made no context with it", ""};
    if (run.ended.status != 0) {
        outcome.line += "; it " + end_of(run.ended);
        outcome.cure = "its messages above say why";
    } else if (run.flags.has_device)
        outcome.cure = "it may have had nothing to compute";
    else
        outcome.cure = name + " has no flag -dev to name a device with; llama.cpp takes Winnow by itself where it is "
                              "built with -DGGML_BACKEND_DL=ON and has no discrete GPU";
    return outcome;
}

Outcome of_context_without_attention(const Run& run) {
    const GivenValue attention = given_attention(run.flags, run.command);
    if (attention.is_given && is_off(attention.text))
        return {false, "not called: flash attention is off (" + attention.said_by + ")",
                "Winnow computes flash attention only: say -fa on, or leave it out"};
    if (const std::string refusal = refusal_among(run.notes.errors); !refusal.empty()) return of_refusal(refusal);
    if (!run.notes.in_place.empty())
        return {false, "not called: a cache stayed in place: " + run.notes.in_place.front(), ""};
    return {false,
            "not called: " + name_of(run) + " made a context with Winnow and gave it no attention; it " +
                end_of(run.ended),
            "flash attention has to be on (-fa on), and the cache on Winnow's device (no -ngl 0, no -nkvo)"};
}

} // namespace

RunNotes read_notes(const std::string& text) {
    RunNotes notes;
    std::map<std::string, std::string> reports; // the last of each process
    std::vector<std::string> places, computing; // processes that compute
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        const size_t first = line.find('\t'), second = line.find('\t', first + 1);
        if (first == std::string::npos || second == std::string::npos) continue;
        const std::string event = line.substr(first + 1, second - first - 1), what = line.substr(second + 1);
        if (event == "loaded") notes.is_loaded = true;
        if (event == "loaded") add_once(places, what);
        if (event == "used") notes.is_used = true;
        if (event == "computed") add_once(computing, line.substr(0, first));
        if (event == "error") add_once(notes.errors, what);
        if (event == "warning") add_once(notes.warnings, what);
        if (event == "report") reports[line.substr(0, first)] = what;
    }
    notes.has_computed = !computing.empty();
    notes.has_uncounted = std::any_of(computing.begin(), computing.end(),
                                      [&](const std::string& process) { return reports.count(process) == 0; });
    for (const auto& [process, report] : reports) {
        const json read = json::parse(report, nullptr, false);
        if (read.is_object()) add_report(notes, read);
    }
    for (const std::string& each : notes.in_place) {
        const std::string reason = each.substr(each.find(": ") + 2);
        std::erase_if(notes.warnings, [&](const auto& warning) {
            return !reason.empty() && warning.find(reason) != std::string::npos;
        });
    }
    if (notes.devices.empty()) notes.devices = places;
    return notes;
}

Outcome outcome_of(const Run& run) {
    const RunNotes& notes = run.notes;
    if (notes.has_computed) return of_call(run);
    const GivenValue device = given_device(run.flags, run.command);
    if (run.flags.has_device && device.is_given && lower(device.text).find("winnow") == std::string::npos)
        return {false, "not called: " + device.said_by + " does not name Winnow",
                "say -dev Winnow, or leave it out: winnow run adds it"};
    if (notes.is_used) return of_context_without_attention(run);
    if (const std::string refusal = refusal_among(notes.errors); !refusal.empty()) return of_refusal(refusal);
    return notes.is_loaded ? of_unused_plugin(run) : of_program_without_plugin(run);
}

} // namespace winnow::tools
