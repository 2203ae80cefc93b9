// Rows are found again by what was measured: their words, and the sizes in them.
#include "compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string_view>
#include <vector>

namespace winnow::bench {
namespace {

using nlohmann::json;

constexpr std::array sizes_of_rows = {"head_size", "group",  "keys",      "kv_heads", "tokens",
                                      "context",   "budget", "threshold", "layers"};
constexpr std::array limits = {"read_seconds",       "memcpy_seconds",      "ggml_seconds", "memory_seconds",
                               "arithmetic_seconds", "empty_launch_seconds"}; // of the machine, and the peer
constexpr double least_change = 0.03, of_single_runs = 0.10;

// The times of one figure, one of each repeat.
struct Figure {
    std::vector<double> seconds;
    double best() const { return *std::min_element(seconds.begin(), seconds.end()); }
    double spread() const { return *std::max_element(seconds.begin(), seconds.end()) / best() - 1; }
};
using Figures = std::map<std::string, Figure>;

std::string name_of(const std::string& bench, const json& row) {
    std::string name = bench;
    for (const auto& [key, value] : row.items())
        if (value.is_string()) name += " " + value.get<std::string>();
    for (const char* size : sizes_of_rows)
        if (row.contains(size)) name += std::string(" ") + size + "=" + row.at(size).dump();
    return name;
}

// A time, or of several the one in the middle; NaN: it is none.
double time_of(const json& value) {
    if (value.is_number()) return value.get<double>();
    if (!value.is_array() || value.empty()) return std::nan("");
    auto all = value.get<std::vector<double>>();
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2), all.end());
    return all[all.size() / 2];
}

Figures figures_of(const json& report) {
    Figures figures;
    try {
        const json single = json::array({report});
        for (const json& run : report.contains("repeats") ? report.at("repeats") : single)
            for (const auto& [bench, rows] : run.items())
                for (const json& row : rows.is_array() ? rows : json::array())
                    for (const auto& [key, value] : row.items())
                        if (std::string_view(key).ends_with("seconds") && time_of(value) > 0)
                            figures[name_of(bench, row) + ": " + key].seconds.push_back(time_of(value));
    } catch (const json::exception& error) {
        throw std::runtime_error(std::string("no report of winnow-bench: ") + error.what());
    }
    if (figures.empty()) throw std::runtime_error("no report of winnow-bench: it has no times");
    return figures;
}

// Nothing where it is not told.
json value_of(const json& report, const char* key) {
    return report.is_object() && report.contains(key) ? report.at(key) : json();
}

// What is another one, but no reason not to compare.
std::string differences(const json& before, const json& after) {
    std::string text;
    for (const char* key : {"driver", "platform_version", "winnow"}) {
        const json its = value_of(before, key), others = value_of(after, key);
        if (its.is_null() || others.is_null() || its == others) continue; // an older report does not tell
        text += std::string("another ") + key + ": before " + its.dump() + ", now " + others.dump() + "\n";
    }
    return text;
}

bool is_limit(const std::string& name) {
    return std::any_of(limits.begin(), limits.end(), [&](const char* limit) { return name.ends_with(limit); });
}

bool has_changed(const Figure& before, const Figure& after) {
    const bool are_single = before.seconds.size() == 1 || after.seconds.size() == 1;
    const double noise = std::max(before.spread(), after.spread());
    const double change = std::abs(std::log(after.best() / before.best()));
    return change > std::log1p(std::max(noise, are_single ? of_single_runs : least_change));
}

std::string line(const std::string& name, double before, double after, double noise) {
    std::array<char, 512> text{};
    std::snprintf(text.data(), text.size(), "%10.1f %10.1f %+9.1f %8.1f   ", before * 1e6, after * 1e6,
                  100 * (after / before - 1), 100 * noise);
    return text.data() + name + "\n";
}

} // namespace

std::string changes(const json& before, const json& after) {
    for (const char* key : {"device", "platform", "options"}) {
        const json its = value_of(before, key), others = value_of(after, key);
        if (its != others)
            throw std::runtime_error("the reports are of another " + std::string(key) + ": " + its.dump() + " and " +
                                     others.dump());
    }
    const Figures old = figures_of(before), now = figures_of(after);
    std::string text, machine, missing;
    size_t compared = 0, changed = 0;
    for (const auto& [name, figure] : now) {
        const auto found = old.find(name);
        if (found == old.end()) {
            missing += "only now: " + name + "\n";
            continue;
        }
        ++compared;
        if (!has_changed(found->second, figure)) continue;
        ++changed;
        (is_limit(name) ? machine : text) +=
            line(name, found->second.best(), figure.best(), std::max(found->second.spread(), figure.spread()));
    }
    for (const auto& [name, figure] : old)
        if (!now.contains(name)) missing += "only before: " + name + "\n";
    if (!machine.empty()) text += "limits of the machine, which changed, too:\n" + machine;
    if (!text.empty()) text = " before, us    now, us  change, %  noise, %\n" + text;
    return differences(before, after) + text + missing + std::to_string(changed) + " of " + std::to_string(compared) +
           " figures changed beyond their noise\n";
}

} // namespace winnow::bench
