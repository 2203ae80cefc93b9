// Checking the string before a model is known: against a cache of a shape that every policy and format takes.
#include "kv_config.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <mutex>
#include <stdexcept>
#include <string_view>

#include "ggml_api.hpp"
#include "profile_file.hpp"

namespace winnow::ggml {

namespace {

std::mutex mutex;
std::string current;
std::string refusal; // why WINNOW_KV is none

void check(const Plugin& plugin, const std::string& config) {
    if (plugin.api().version < WINNOW_MAKE_VERSION(0, 3)) {
        throw std::runtime_error("the backend speaks an ABI before version 0.3, which has caches");
    }
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

} // namespace

void read_kv_config(const Plugin& plugin) {
    const char* config = std::getenv("WINNOW_KV");
    if (!config || !*config) return;
    try {
        set_kv_config(plugin, config);
        const char* windows = std::getenv("WINNOW_KV_SWA");
        if (windows && *windows) check(plugin, windows);
    } catch (const std::runtime_error& error) {
        refusal = "WINNOW_KV=" + std::string(config) + ": " + error.what();
        log_line(GGML_LOG_LEVEL_ERROR, "%s", refusal.c_str());
    }
}

void set_kv_config(const Plugin& plugin, const std::string& config) {
    if (!config.empty()) check(plugin, config);
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
    const char* own = std::getenv("WINNOW_KV_SWA");
    if (own && *own) return own;
    static constexpr std::string_view kept[] = {"k", "v", "k_norm", "v_norm", "sink", "ring", "cadence", "center"};
    const std::string policy = config.substr(0, config.find(':'));
    std::string formats = policy == "winnow" ? "winnow" : "none"; // without a budget winnow keeps all
    char separator = ':';
    for (size_t begin = policy.size(); begin < config.size();) {
        const size_t end = std::min(config.find(',', begin + 1), config.size());
        const std::string pair = config.substr(begin + 1, end - begin - 1);
        begin = end;
        if (std::find(std::begin(kept), std::end(kept), pair.substr(0, pair.find('='))) == std::end(kept)) continue;
        formats += separator + pair;
        separator = ',';
    }
    return formats;
}

bool has_kv_config() {
    const std::lock_guard lock(mutex);
    return !current.empty();
}

} // namespace winnow::ggml
