// One function for each thing that is looked at; what each found is a line.
#include "doctor.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "attention_check.hpp"
#include "environment_check.hpp"
#include "info.hpp"
#include "installation.hpp"
#include "kv_rules.hpp"
#include "last_run.hpp"
#include "plan/costs.hpp"
#include "winnow_loader.h"

namespace winnow::tools {

namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

constexpr const char* pocl = "Portable Computing Language";
constexpr const char* install_driver =
    "install a driver: pip install winnowkv_pocl-<...>.whl (CPUs, without root; ci/driver_wheel makes it); Debian, "
    "Ubuntu: apt install pocl-opencl-icd (CPUs), intel-opencl-icd, mesa-opencl-icd or the vendor's driver (GPUs)";

struct Check {
    const char* status; // "ok", "warn" or "FAIL"
    std::string what, cure;
};
using Checks = std::vector<Check>;

std::string variable(const char* name) {
    const char* const value = std::getenv(name);
    return value ? value : "";
}

// A folder of the user's: named by a variable, else below another one.
fs::path folder_of(const char* named, const char* below_named, const char* below_home) {
    const std::string folder = variable(named), home = variable("HOME");
    if (!folder.empty()) return fs::path(folder) / below_named;
    return home.empty() ? fs::path() : fs::path(home) / below_home;
}

// Why nothing can be written into a folder, or why it cannot be made in the one that there is; "" where it can.
std::string trouble_with(const fs::path& folder, bool holds_code) {
    if (folder.empty()) return "neither its variable nor HOME is set";
    fs::path there = folder;
    std::error_code unknown;
    while (!fs::exists(there, unknown) && there.has_relative_path()) there = there.parent_path();
    if (!fs::is_directory(there, unknown)) return there.string() + " is no folder";
    if (::access(there.c_str(), W_OK | X_OK) != 0) return std::strerror(errno);
    struct statvfs system {};
    if (::statvfs(there.c_str(), &system) != 0) return std::strerror(errno);
    if (holds_code && (system.f_flag & ST_NOEXEC) != 0) return "no code can be loaded from there (mounted noexec)";
    return "";
}

void check_folder(Checks& checks, const std::string& what, const fs::path& folder, bool holds_code,
                  const std::string& cure) {
    const std::string trouble = trouble_with(folder, holds_code);
    if (trouble.empty())
        checks.push_back({"ok", what + ": " + folder.string(), ""});
    else
        checks.push_back({"warn", what + ": " + folder.string() + " cannot be written: " + trouble, cure});
}

// A backend while it is open.
class OpenBackend {
public:
    explicit OpenBackend(const char* name) {
        char message[4096] = "";
        if (winnow_library_open(name, nullptr, &library_, message, sizeof message) != WINNOW_OK)
            throw std::runtime_error(message);
    }
    ~OpenBackend() { winnow_library_close(&library_); }
    OpenBackend(const OpenBackend&) = delete;
    OpenBackend& operator=(const OpenBackend&) = delete;
    const winnow_api& api() const { return *library_.api; }

private:
    winnow_library library_{};
};

std::string name_of(const ordered_json& device) {
    std::string name = "device ";
    name.append(device["device"].get<std::string>()).append(", ").append(device.value("name", ""));
    return name.append(" (").append(device.value("platform", "")).append(")");
}

void check_attention(Checks& checks, const OpenBackend& opencl, const std::vector<float>& expected,
                     const ordered_json& device) {
    const std::string name = name_of(device) + ": ";
    try {
        const AttentionRun run = run_attention(opencl.api(), device["device"].get<std::string>());
        const double difference = largest_difference(run.out, expected);
        char text[64];
        std::snprintf(text, sizeof text, "%.1g", difference);
        if (difference <= most_rounding)
            checks.push_back(
                {"ok", name + "attention agrees with the reference (largest difference " + text + ")", ""});
        else
            checks.push_back({"FAIL", name + "attention differs from the reference by " + text,
                              "update the driver, or name another device in WINNOW_DEVICE; winnow-conformance says in "
                              "which cases the two differ"});
        for (const std::string& warning : run.warnings) checks.push_back({"warn", name + warning, ""});
    } catch (const std::runtime_error& error) {
        checks.push_back({"FAIL", name + "attention fails: " + error.what(),
                          "update the driver, or name another device in WINNOW_DEVICE"});
    }
}

// The backend of this name; nothing, and a check that failed, where it cannot be opened.
std::unique_ptr<OpenBackend> open_backend(Checks& checks, const char* name) {
    try {
        return std::make_unique<OpenBackend>(name);
    } catch (const std::runtime_error& error) {
        checks.push_back({"FAIL", std::string("backend ") + name + ": " + error.what(),
                          "install Winnow again, whole: its libraries are beside its programs, in ../lib/winnow"});
        return nullptr;
    }
}

// Devices, and attention on each. Returns whether one of the devices is PoCL's.
bool check_devices(Checks& checks, const OpenBackend& opencl, const OpenBackend& reference) {
    ordered_json found;
    add_backend("opencl", {}, found);
    checks.push_back(
        {"ok", "backend opencl " + found["version"].get<std::string>() + ": " + found["path"].get<std::string>(), ""});
    if (found["devices"].empty()) {
        const std::string why = found.contains("error") ? ": " + found["error"].get<std::string>() : "";
        checks.push_back({"FAIL", "no OpenCL driver offers a device" + why, install_driver});
        return false;
    }
    const std::vector<float> expected = run_attention(reference.api(), "").out;
    bool has_pocl = false;
    for (const ordered_json& device : found["devices"]) {
        check_attention(checks, opencl, expected, device);
        has_pocl = has_pocl || device.value("platform", "") == pocl;
    }
    return has_pocl;
}

void check_chosen_device(Checks& checks) {
    const std::string named = variable("WINNOW_DEVICE");
    if (named.empty()) return;
    InfoOptions options;
    options.device = named;
    ordered_json backend;
    add_backend("opencl", options, backend);
    const ordered_json& device = backend["devices"].front();
    if (device.contains("error"))
        checks.push_back({"FAIL", "WINNOW_DEVICE=" + named + ": " + device["error"].get<std::string>(),
                          "name a device that winnow info lists, or unset the variable"});
    else
        checks.push_back({"ok", "WINNOW_DEVICE=" + named + " is " + device.value("name", "a device"), ""});
}

// "0.9.8, 0.25.3": of the libraries beside the plugin.
std::string versions_beside(const fs::path& plugin) {
    const std::string prefix = "libwinnow_ggml-", suffix = ".so";
    std::vector<std::string> versions;
    for (const auto& entry : fs::directory_iterator(plugin.parent_path())) {
        const std::string name = entry.path().filename().string();
        if (name.starts_with(prefix) && name.ends_with(suffix))
            versions.push_back(name.substr(prefix.size(), name.size() - prefix.size() - suffix.size()));
    }
    std::sort(versions.begin(), versions.end(),
              [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; });
    std::string text;
    for (const std::string& version : versions) text.append(text.empty() ? "" : ", ").append(version);
    return text;
}

void check_plugin(Checks& checks) {
    try {
        const fs::path plugin = find_plugin();
        const std::string versions = versions_beside(plugin);
        if (versions.empty())
            checks.push_back({"FAIL",
                              "plugin for llama.cpp: " + plugin.string() + " has no libwinnow_ggml-*.so beside it",
                              "install Winnow again, whole"});
        else
            checks.push_back(
                {"ok", "plugin for llama.cpp: " + plugin.string() + ", for the layouts of ggml " + versions, ""});
    } catch (const std::runtime_error& error) {
        checks.push_back({"warn", error.what(), "only llama.cpp needs it"});
    }
}

void check_variables(Checks& checks) {
    for (const UnknownVariable& each : unknown_among(set_variables()))
        checks.push_back({"warn", each.name + " is set, and Winnow reads no such variable",
                          each.nearest.empty() ? "hosts/ggml/README.md lists those that there are"
                                               : "expected " + each.nearest + "?"});
    const std::string kv = variable("WINNOW_KV");
    if (kv.empty()) return;
    try {
        const Backend backend("reference");
        for (const ggml::KvRule& rule : ggml::parse_rules(kv)) backend.check(rule.config);
        checks.push_back({"ok", "WINNOW_KV=" + kv, ""});
    } catch (const std::runtime_error& error) {
        checks.push_back({"FAIL", "WINNOW_KV=" + kv + ": " + error.what(), "docs/policies.md lists policies and keys"});
    }
}

void check_last_run(Checks& checks) {
    const std::optional<LastRun> last = read_last_run();
    if (!last) {
        checks.push_back({"ok", "winnow run has not been used yet", ""});
        return;
    }
    const std::string what = "last winnow run, " + last->program + ", " + last->time + ": " + last->outcome.line;
    checks.push_back({last->outcome.called ? "ok" : "warn", what, last->outcome.cure});
}

} // namespace

int run_doctor(bool json, std::ostream& out) {
    Checks checks;
    // Before a backend is open, which gives PoCL another folder where it cannot use its own.
    Checks of_pocl;
    const std::string own_pocl = variable("POCL_CACHE_DIR");
    check_folder(of_pocl, "PoCL's kernel cache",
                 own_pocl.empty() ? folder_of("XDG_CACHE_HOME", "pocl/kcache", ".cache/pocl/kcache")
                                  : fs::path(own_pocl),
                 true, "set POCL_CACHE_DIR to a folder that can be written");
    // It stays open until the end: the folder that it gives PoCL goes with it, and PoCL does not see that.
    const auto opencl = open_backend(checks, "opencl"), reference = open_backend(checks, "reference");
    if (opencl && reference) {
        if (check_devices(checks, *opencl, *reference)) checks.insert(checks.end(), of_pocl.begin(), of_pocl.end());
        check_chosen_device(checks);
    }
    check_folder(checks, "kernel cache", cache_folder(), false,
                 "set XDG_CACHE_HOME to a folder that can be written: until then each process compiles its kernels");
    check_folder(checks, "tuning", folder_of("XDG_CONFIG_HOME", "winnow", ".config/winnow"), false,
                 "set XDG_CONFIG_HOME to a folder that can be written, or name a file in WINNOW_TUNING");
    check_plugin(checks);
    check_variables(checks);
    check_last_run(checks);
    bool is_fine = true;
    ordered_json all = ordered_json::array();
    for (Check& check : checks) {
        std::replace(check.what.begin(), check.what.end(), '\n', ' '); // of a compiler's message
        is_fine = is_fine && std::string(check.status) != "FAIL";
        all.push_back({{"status", check.status}, {"what", check.what}, {"cure", check.cure}});
        if (json) continue;
        out << check.status << std::string(6 - std::strlen(check.status), ' ') << check.what << '\n';
        if (!check.cure.empty()) out << "      " << check.cure << '\n';
    }
    if (json) out << ordered_json{{"checks", all}}.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
    return is_fine ? 0 : 1;
}

} // namespace winnow::tools
