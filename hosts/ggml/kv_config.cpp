// Checking a string before a model is known: against a cache of a shape that every policy and format takes.
#include "kv_config.hpp"

#include <charconv>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string_view>

#include "ggml_api.hpp"
#include "profile_file.hpp"

namespace winnow::ggml {

namespace {

std::mutex mutex;
KvConfig current;
std::string refusal; // why WINNOW_KV is none

// Throws std::runtime_error where it is no configuration, or names a profile that cannot be read.
CacheMeaning meaning_of(const Plugin& plugin, const std::string& config) {
    CacheMeaning meaning = plugin.meaning_of(any_shape(config.c_str()));
    read_profile(meaning.profile_file, {});
    return meaning;
}

// WINNOW_KV_SWA, "" where it is not set.
std::string own_window_config(const Plugin& plugin) {
    const char* own = std::getenv("WINNOW_KV_SWA");
    if (!own || !*own) return "";
    try {
        meaning_of(plugin, own);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("WINNOW_KV_SWA=" + std::string(own) + ": " + error.what());
    }
    return own;
}

} // namespace

void read_kv_config(const Plugin& plugin) {
    const char* config = std::getenv("WINNOW_KV");
    try {
        kv_pressure();
        if (config && *config) set_kv_config(plugin, config);
    } catch (const std::runtime_error& error) {
        refusal = error.what();
        if (config && !refusal.starts_with("WINNOW_")) refusal = "WINNOW_KV=" + std::string(config) + ": " + refusal;
        log_line(GGML_LOG_LEVEL_ERROR, "%s", refusal.c_str());
    }
}

double kv_pressure() {
    const char* text = std::getenv("WINNOW_PRESSURE");
    if (!text || !*text) return 0;
    const std::string_view given = text;
    if (given == "auto") return -1;
    double pressure = -1;
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), pressure);
    if (error != std::errc() || end != given.data() + given.size() || !(pressure >= 0 && pressure <= 1))
        throw std::runtime_error("WINNOW_PRESSURE=" + std::string(given) + ": expected auto, or a share from 0 to 1");
    return pressure;
}

void set_kv_config(const Plugin& plugin, const std::string& config) {
    KvConfig next;
    kv_pressure(); // throws where it is none
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
