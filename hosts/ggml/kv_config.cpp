// Checking the string before a model is known: against a cache of a shape that every policy and format takes.
#include "kv_config.hpp"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string_view>

#include "config_value.hpp"
#include "ggml_api.hpp"
#include "profile_file.hpp"

namespace winnow::ggml {

namespace {

std::mutex mutex;
std::string current;
std::string refusal; // why WINNOW_KV is none

void check(const Plugin& plugin, const std::string& config) {
    read_profile(config, {}); // whether it can be
    constexpr double profile[3] = {1, 1, 1};
    winnow_cache_desc desc{};
    desc.struct_size = sizeof desc;
    desc.config = config.c_str();
    desc.layers = desc.q_num_heads = desc.kv_num_heads = 1;
    desc.head_size = 128;
    desc.context = 1 << 20;
    desc.profile = profile;
    const std::string reason = plugin.refusal(desc);
    if (!reason.empty()) throw std::runtime_error(reason);
}

const char* own_window_config() {
    const char* own = std::getenv("WINNOW_KV_SWA");
    return own && *own ? own : nullptr;
}

void check_windows(const Plugin& plugin) {
    const char* own = own_window_config();
    if (!own) return;
    try {
        check(plugin, own);
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("WINNOW_KV_SWA=" + std::string(own) + ": " + error.what());
    }
}

} // namespace

void read_kv_config(const Plugin& plugin) {
    const char* config = std::getenv("WINNOW_KV");
    if (!config || !*config) return;
    try {
        set_kv_config(plugin, config);
    } catch (const std::runtime_error& error) {
        refusal = "WINNOW_KV=" + std::string(config) + ": " + error.what();
        log_line(GGML_LOG_LEVEL_ERROR, "%s", refusal.c_str());
    }
}

void set_kv_config(const Plugin& plugin, const std::string& config) {
    if (!config.empty()) {
        check(plugin, config);
        check_windows(plugin);
    }
    const std::lock_guard lock(mutex);
    current = config;
    refusal.clear();
}

std::string kv_config() {
    const std::lock_guard lock(mutex);
    if (!refusal.empty()) throw std::runtime_error(refusal);
    return current;
}

std::string window_config(const std::string& config) {
    if (const char* own = own_window_config()) return own;
    // Without a budget winnow keeps all.
    std::string formats = config.substr(0, config.find(':')) == "winnow" ? "winnow" : "none";
    char separator = ':';
    for (const char* key : {"k", "v", "k_norm", "v_norm", "sink", "residual", "cadence", "center"}) {
        const std::string value = value_of(config, key);
        if (value.empty()) continue;
        formats += separator + (key + ("=" + value));
        separator = ',';
    }
    return formats;
}

bool has_kv_config() {
    const std::lock_guard lock(mutex);
    return !current.empty();
}

} // namespace winnow::ggml
