// Spelling, by the least number of letters to change.
#include "environment_check.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include "kv_rules.hpp"
#include "plan/costs.hpp"

namespace winnow::tools {

namespace {

constexpr size_t most_wrong_letters = 2;

// Levenshtein's distance.
size_t distance(std::string_view a, std::string_view b) {
    std::vector<size_t> row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        size_t diagonal = row[0];
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row[b.size()];
}

} // namespace

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

const std::vector<std::string>& known_variables() {
    static const std::vector<std::string> all{"WINNOW_BACKEND",
                                              "WINNOW_DECODE_FROM",
                                              "WINNOW_DEVICE",
                                              "WINNOW_DRIVER",
                                              "WINNOW_EVAL_MEASURE",
                                              "WINNOW_GGML_STRICT",
                                              "WINNOW_KV",
                                              "WINNOW_KV_SWA",
                                              "WINNOW_LLAMA_CPP_BIN",
                                              "WINNOW_PATH",
                                              "WINNOW_PLUGIN_FOLDERS",
                                              "WINNOW_PRESSURE",
                                              "WINNOW_PROGRAM_CACHE_MIB",
                                              "WINNOW_REPORT",
                                              "WINNOW_REPORT_EVERY",
                                              "WINNOW_REPORT_ROWS",
                                              "WINNOW_REPORT_WITH",
                                              "WINNOW_RUN_LOG",
                                              "WINNOW_TRACE",
                                              "WINNOW_TUNING"};
    return all;
}

std::vector<UnknownVariable> unknown_among(const std::vector<std::string>& names) {
    std::vector<UnknownVariable> unknown;
    const std::vector<std::string>& known = known_variables();
    for (const std::string& name : names) {
        if (std::find(known.begin(), known.end(), name) != known.end()) continue;
        const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
            return distance(name, a) < distance(name, b);
        });
        const bool is_near = distance(name, *nearest) <= most_wrong_letters;
        if (is_near || name.starts_with("WINNOW_")) unknown.push_back({name, is_near ? *nearest : ""});
    }
    return unknown;
}

void check_kv(const std::string& said_by, const std::string& kv) {
    try {
        const Backend backend("reference"); // which needs no driver
        for (const ggml::KvRule& rule : ggml::parse_rules(kv)) backend.check(rule.config);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(said_by + kv + ": " + error.what());
    }
}

void check_kv_of_windows() {
    const std::string own = variable("WINNOW_KV_SWA");
    if (own.empty()) return;
    const std::string said = "WINNOW_KV_SWA=" + own + ": ";
    if (variable("WINNOW_KV").empty()) throw std::runtime_error(said + "expected with WINNOW_KV, which is not set");
    try {
        Backend("reference").check(own);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error(said + error.what());
    }
}

std::vector<std::string> set_variables() {
    std::vector<std::string> names;
    for (char** each = environ; each && *each; ++each) {
        const std::string_view variable = *each;
        names.emplace_back(variable.substr(0, variable.find('=')));
    }
    std::sort(names.begin(), names.end());
    return names;
}

} // namespace winnow::tools
