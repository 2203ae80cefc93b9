// Checking the string before a model is known: against a cache of a shape that every policy and format takes.
#include "kv_config.hpp"

#include <cstdlib>
#include <mutex>
#include <stdexcept>

namespace winnow::ggml {

namespace {

std::mutex mutex;
std::string current;

void check(const Plugin& plugin, const std::string& config) {
    if (plugin.api().version < WINNOW_MAKE_VERSION(0, 3)) {
        throw std::runtime_error("the backend speaks an ABI before version 0.3, which has caches");
    }
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
    } catch (const std::runtime_error& error) {
        throw std::runtime_error("WINNOW_KV=" + std::string(config) + ": " + error.what());
    }
}

void set_kv_config(const Plugin& plugin, const std::string& config) {
    if (!config.empty()) check(plugin, config);
    const std::lock_guard lock(mutex);
    current = config;
}

std::string kv_config() {
    const std::lock_guard lock(mutex);
    return current;
}

} // namespace winnow::ggml
