// Checking a string before a model is known: against a cache of a shape that every policy and format takes.
#include "kv_config.hpp"

#include <mutex>
#include <stdexcept>

#include "environment.hpp"
#include "ggml_api.hpp"
#include "number_variables.hpp"
#include "report_with.hpp"

namespace winnow::ggml {

namespace {

struct Settings {
    std::mutex mutex;
    KvConfig current;
    std::string refusal; // why WINNOW_KV is none
};
Settings& settings() {
    static Settings& all = *new Settings; // contexts may end while the process does
    return all;
}

// Throws std::runtime_error where it is no configuration, or names a file that cannot be read.
CacheMeaning meaning_of(const Plugin& plugin, const std::string& config) {
    CacheMeaning meaning =
        meaning_of_any_shape(config.c_str(), [&](const winnow_cache_desc& desc) { return plugin.meaning_of(desc); });
    const Resources files(meaning, {}, 0); // all of them can be read
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

// Without WINNOW_KV all caches are in place, those of windows, too.
void expect_no_window_config() {
    const std::string own(variable("WINNOW_KV_SWA"));
    if (!own.empty()) throw std::runtime_error("WINNOW_KV_SWA=" + own + ": expected with WINNOW_KV, which is not set");
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
        if (config.empty())
            expect_no_window_config();
        else
            set_kv_config(plugin, config);
    } catch (const std::runtime_error& error) {
        std::string refusal = error.what();
        if (!config.empty() && !refusal.starts_with("WINNOW_")) refusal = "WINNOW_KV=" + config + ": " + refusal;
        log_line(GGML_LOG_LEVEL_ERROR, "%s", refusal.c_str());
        const std::lock_guard lock(settings().mutex);
        settings().refusal = std::move(refusal);
    }
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
    const std::lock_guard lock(settings().mutex);
    settings().current = next;
    settings().refusal.clear();
}

KvConfig kv_config() {
    const std::lock_guard lock(settings().mutex);
    if (!settings().refusal.empty()) throw std::runtime_error(settings().refusal);
    return settings().current;
}

bool has_kv_config() {
    const std::lock_guard lock(settings().mutex);
    return settings().current.is_set();
}

} // namespace winnow::ggml
