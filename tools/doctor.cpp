// One function for each thing that is looked at; what each found is a line.
#include "doctor.hpp"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <functional>
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
#include "last_run.hpp"
#include "number_variables.hpp"
#include "open_backend.hpp"
#include "report_with.hpp"

namespace winnow::tools {

namespace fs = std::filesystem;

namespace {

using nlohmann::ordered_json;

constexpr const char* list_of_policies = "docs/policies.md lists policies and keys";
constexpr const char* list_of_variables = "hosts/ggml/variables.md lists the variables";
constexpr const char* pocl = "Portable Computing Language";
constexpr const char* install_driver =
    "install a driver: pip install winnowkv_pocl-<...>.whl (CPUs, without root; ci/driver_wheel makes it); Debian, "
    "Ubuntu: apt install pocl-opencl-icd (CPUs), intel-opencl-icd, mesa-opencl-icd or the vendor's driver (GPUs)";

struct Check {
    const char* status; // "ok", "warn" or "FAIL"
    std::string what, cure;
};

// What was found: printed at once, so that it is not lost where a driver ends the process or hangs, or as JSON at the
// end.
class Checks {
public:
    Checks(bool is_json, std::ostream& out) : is_json_(is_json), out_(out) {}

    void add(Check check) {
        std::replace(check.what.begin(), check.what.end(), '\n', ' '); // of a compiler's message
        is_fine_ = is_fine_ && std::string(check.status) != "FAIL";
        if (is_json_) {
            all_.push_back({{"status", check.status}, {"what", check.what}, {"cure", check.cure}});
            return;
        }
        out_ << check.status << std::string(6 - std::strlen(check.status), ' ') << check.what << '\n';
        if (!check.cure.empty()) out_ << "      " << check.cure << '\n';
        out_.flush();
    }
    void finish() const {
        if (!is_json_) return;
        out_ << ordered_json{{"checks", all_}}.dump(2, ' ', false, ordered_json::error_handler_t::replace) << '\n';
    }
    bool is_fine() const { return is_fine_; }

private:
    bool is_json_, is_fine_ = true;
    std::ostream& out_;
    ordered_json all_ = ordered_json::array();
};

// A check that failed where it threw an exception.
template <typename Function>
void attempt(Checks& checks, const std::string& what, const std::string& cure, Function function) {
    try {
        function();
    } catch (const std::exception& error) {
        checks.add({"FAIL", what + error.what(), cure});
    }
}

constexpr const char* install_again =
    "install Winnow again, whole: its libraries are beside its programs, in ../lib/winnow";

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

Check folder_check(const std::string& what, const fs::path& folder, bool holds_code, const std::string& cure) {
    const std::string trouble = trouble_with(folder, holds_code);
    if (trouble.empty()) return {"ok", what + ": " + folder.string(), ""};
    return {"warn", what + ": " + folder.string() + " cannot be written: " + trouble, cure};
}

std::string name_of(const ordered_json& device) {
    std::string name = "device ";
    name.append(device["device"].get<std::string>()).append(", ").append(device.value("name", ""));
    return name.append(" (").append(device.value("platform", "")).append(")");
}

void check_attention(Checks& checks, const OpenBackend& opencl, const std::vector<float>& expected,
                     const ordered_json& device) {
    const std::string name = name_of(device) + ": ";
    try {
        const AttentionRun run = run_attention(opencl, device["device"].get<std::string>());
        const double difference = largest_difference(run.out, expected);
        char text[64];
        std::snprintf(text, sizeof text, "%.1g", difference);
        if (difference <= most_rounding)
            checks.add({"ok", name + "attention agrees with the reference (largest difference " + text + ")", ""});
        else
            checks.add({"FAIL", name + "attention differs from the reference by " + text,
                        "update the driver, or name another device in WINNOW_DEVICE; winnow-conformance says in "
                        "which cases the two differ"});
        for (const std::string& warning : run.warnings) checks.add({"warn", name + warning, ""});
    } catch (const std::runtime_error& error) {
        checks.add({"FAIL", name + "attention fails: " + error.what(),
                    "update the driver, or name another device in WINNOW_DEVICE"});
    }
}

// The backend of this name; nothing, and a check that failed, where it cannot be opened.
std::unique_ptr<OpenBackend> open_backend(Checks& checks, const char* name) {
    std::unique_ptr<OpenBackend> opened;
    attempt(checks, std::string("backend ") + name + ": ", install_again,
            [&] { opened = std::make_unique<OpenBackend>(name); });
    return opened;
}

void check_chosen_device(Checks& checks, const OpenBackend& opencl) {
    const std::string named = variable("WINNOW_DEVICE"), what = "WINNOW_DEVICE=" + named;
    if (named.empty()) return;
    attempt(checks, what + ": ", "name a device that winnow info lists, or unset the variable", [&] {
        winnow_context_desc desc{};
        desc.struct_size = sizeof desc;
        desc.device = named.c_str();
        const OwnedContext context = opencl.make_context(desc);
        winnow_device_info info{};
        info.struct_size = sizeof info;
        opencl.api().context_info(context.get(), &info);
        checks.add({"ok", what + " is " + info.name, ""});
    });
}

// Devices, attention on each, and the one that WINNOW_DEVICE names. Returns whether one of the devices is PoCL's.
bool check_devices(Checks& checks, const OpenBackend& opencl, const OpenBackend& reference) {
    ordered_json found;
    add_backend(opencl, {}, found);
    checks.add(
        {"ok", "backend opencl " + found["version"].get<std::string>() + ": " + found["path"].get<std::string>(), ""});
    if (found["devices"].empty()) {
        const std::string why = found.contains("error") ? ": " + found["error"].get<std::string>() : "";
        checks.add({"FAIL", "no OpenCL driver offers a device" + why, install_driver});
        return false;
    }
    std::vector<float> expected;
    attempt(checks, "backend reference: attention fails: ", install_again,
            [&] { expected = run_attention(reference, "").out; });
    bool has_pocl = false;
    for (const ordered_json& device : found["devices"]) {
        if (!expected.empty()) check_attention(checks, opencl, expected, device);
        has_pocl = has_pocl || device.value("platform", "") == pocl;
    }
    check_chosen_device(checks, opencl);
    return has_pocl;
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
            checks.add({"FAIL", "plugin for llama.cpp: " + plugin.string() + " has no libwinnow_ggml-*.so beside it",
                        "install Winnow again, whole"});
        else
            checks.add(
                {"ok", "plugin for llama.cpp: " + plugin.string() + ", for the layouts of ggml " + versions, ""});
    } catch (const std::runtime_error& error) {
        checks.add({"warn", error.what(), "only llama.cpp needs it"});
    }
}

void check_variables(Checks& checks) {
    for (const UnknownVariable& each : unknown_among(set_variables()))
        checks.add({"warn", each.name + " is set, and Winnow reads no such variable",
                    each.nearest.empty() ? "hosts/ggml/variables.md lists those that there are"
                                         : "expected " + each.nearest + "?"});
    const struct {
        const char* name;
        std::function<void()> expect; // throws where its value is wrong
        const char* cure;
    } variables[] = {
        {"WINNOW_KV", [] { check_kv("WINNOW_KV=", variable("WINNOW_KV")); }, list_of_policies},
        {"WINNOW_KV_SWA", check_kv_of_windows, list_of_policies},
        {"WINNOW_PRESSURE", ggml::kv_pressure, list_of_variables},
        {"WINNOW_DECODE_FROM", ggml::decode_from, list_of_variables},
        {"WINNOW_REPORT_EVERY", ggml::report_interval, list_of_variables},
        {"WINNOW_REPORT_WITH", ggml::check_report_with, list_of_variables},
        {"WINNOW_GGML_STRICT", ggml::is_strict, list_of_variables},
        {"WINNOW_PROGRAM_CACHE_MIB",
         [] { ggml::number_of<int64_t>("WINNOW_PROGRAM_CACHE_MIB", 0, 1 << 20, "a whole number from 0 to 1048576"); },
         list_of_variables},
        {"WINNOW_BACKEND", [] { const OpenBackend named(""); }, "unset the variable, or name opencl or reference"},
        {"GGML_BACKEND_PATH", chosen_plugin, "unset the variable: winnow run sets it itself"}};
    for (const auto& each : variables) {
        const std::string value = variable(each.name);
        if (value.empty()) continue;
        attempt(checks, "", each.cure, [&] {
            each.expect();
            checks.add({"ok", each.name + ("=" + value), ""});
        });
    }
}

void check_last_run(Checks& checks) {
    const std::optional<LastRun> last = read_last_run();
    if (!last) {
        checks.add({"ok", "winnow run has not been used yet", ""});
        return;
    }
    const std::string what = "last winnow run, " + last->program + ", " + last->time + ": " + last->outcome.line;
    checks.add({last->outcome.called ? "ok" : "warn", what, last->outcome.cure});
}

} // namespace

int run_doctor(bool json, std::ostream& out) {
    Checks checks(json, out);
    // Before a backend is open, which gives PoCL another folder where it cannot use its own.
    const std::string own_pocl = variable("POCL_CACHE_DIR");
    const Check of_pocl = folder_check(
        "PoCL's kernel cache",
        own_pocl.empty() ? folder_of("XDG_CACHE_HOME", "pocl/kcache", ".cache/pocl/kcache") : fs::path(own_pocl), true,
        "set POCL_CACHE_DIR to a folder that can be written");
    const auto opencl = open_backend(checks, "opencl"), reference = open_backend(checks, "reference");
    if (opencl && reference)
        attempt(checks, "devices: ", install_driver, [&] {
            if (check_devices(checks, *opencl, *reference)) checks.add(of_pocl);
        });
    checks.add(folder_check(
        "kernel cache", cache_folder(), false,
        "set XDG_CACHE_HOME to a folder that can be written: until then each process compiles its kernels"));
    checks.add(folder_check("tuning", folder_of("XDG_CONFIG_HOME", "winnow", ".config/winnow"), false,
                            "set XDG_CONFIG_HOME to a folder that can be written, or name a file in WINNOW_TUNING"));
    check_plugin(checks);
    check_variables(checks);
    check_last_run(checks);
    checks.finish();
    return checks.is_fine() ? 0 : 1;
}

} // namespace winnow::tools
