// Checking a string before a model is known: against a cache of a shape that every policy and format takes.
#include "kv_config.hpp"

#include <limits>
#include <mutex>
#include <stdexcept>

#include "environment.hpp"
#include "ggml_api.hpp"
#include "report_with.hpp"

namespace winnow::ggml {

namespace {

std::mutex mutex;
KvConfig current;
std::string refusal; // why WINNOW_KV is none

// Throws std::runtime_error where it is no configuration, or names a file that cannot be read.
CacheMeaning meaning_of(const Plugin& plugin, const std::string& config) {
    CacheMeaning meaning =
        meaning_of_any_shape(config.c_str(), [&](const winnow_cache_desc& desc) { return plugin.meaning_of(desc); });
    read_file_of(meaning, {}, 0);
    return meaning;
}

// WINNOW_KV_SWA, "" where it is not set.
std::string own_window_config(const Plugin& plugin) {
    std::string own(variable("WINNOW_KV_SWA"));
    if (own.empty()) return "";
    try {
        meaning_of(plugin, own);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("WINNOW_KV_SWA=" + own + ": " + error.what());
    }
    return own;
}

// Throws where one of those that every cache has is refused.
void check_variables() {
    kv_pressure();
    decode_from();
    check_report_with();
}

} // namespace

void read_kv_config(const Plugin& plugin) {
    const std::string config(variable("WINNOW_KV"));
    try {
        check_variables();
        if (!config.empty()) set_kv_config(plugin, config);
    } catch (const std::runtime_error& error) {
        refusal = error.what();
        if (!config.empty() && !refusal.starts_with("WINNOW_")) refusal = "WINNOW_KV=" + config + ": " + refusal;
        log_line(GGML_LOG_LEVEL_ERROR, "%s", refusal.c_str());
    }
}

double kv_pressure() {
    if (variable("WINNOW_PRESSURE") == "auto") return -1;
    return number_of("WINNOW_PRESSURE", 0.0, 1.0, "auto, or a share from 0 to 1").value_or(0);
}

std::optional<int64_t> decode_from() {
    return number_of<int64_t>("WINNOW_DECODE_FROM", 0, std::numeric_limits<int64_t>::max(), "a position, 0 or more");
}

void set_kv_config(const Plugin& plugin, const std::string& config) {
    KvConfig next;
    check_variables();
    if (!config.empty()) {
        next.text = config;
        next.all = parse_rules(config);
        next.windows = next.all;
        for (KvRule& rule : next.windows) rule.config = meaning_of(plugin, rule.config).storage_config;
        if (const std::string own = own_window_config(plugin); !own.empty()) next.windows = {{{}, own}};
    }
    const std::lock_guard lock(mutex);
    current = next;
    refusal.clear();
}

KvConfig kv_config() {
    const std::lock_guard lock(mutex);
    if (!refusal.empty()) throw std::runtime_error(refusal);
    return current;
}

bool has_kv_config() {
    const std::lock_guard lock(mutex);
    return current.is_set();
}

} // namespace winnow::ggml
