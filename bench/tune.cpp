// `winnow tune`: tries numbers by which a backend divides its work, one after another, each against what holds without
// it, and writes those that are faster beyond the noise into the file that the backend reads.
#include "tune.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string_view>
#include <thread>

#include <CLI/CLI.hpp>

#include "attention.hpp"
#include "json_file.hpp"

namespace winnow::bench {
namespace {

struct Tunable {
    std::string name; // of the variants and of the file
    std::vector<uint64_t> values;
};

// Beside what holds without being said (docs/variants.md).
const Tunable group_overhead{"group_overhead", {4'000, 10'000, 90'000, 300'000}};
const Tunable divided_work{"divided_work", {50'000, 100'000, 900'000, 3'000'000}};
const Tunable groups{"groups", {1, 2, 3, 4, 6, 8, 12, 16}};

// Between small attentions, of which dividing them decides, and one that the memory does.
std::vector<AttentionSizes> cases() {
    std::vector<AttentionSizes> all;
    for (const uint32_t type : {WINNOW_TYPE_F16, WINNOW_TYPE_TURBO4})
        for (const int64_t group : {1, 4})
            for (const int64_t keys : {256, 1024, 4096}) all.push_back({8, group, 1, keys, 128, type, type});
    return all;
}

// How much faster a value is than what holds, in logarithms: the mean over the cases, and its standard error by what
// differs from round to round in each; of a few rounds nobody knows.
struct Gain {
    double mean = 0, error = 0;
    bool is_real(double errors) const { return mean > .01 && mean > errors * error; }
};

Gain gain_of(const std::vector<Quartiles>& of_cases, const std::vector<size_t>& rounds) {
    const auto count = static_cast<double>(of_cases.size());
    Gain gain;
    double variance = 0;
    for (size_t i = 0; i < of_cases.size(); ++i) {
        gain.mean += of_cases[i].middle / count;
        // Of a median of normal numbers, of whose deviations the quartiles are 1.35 apart.
        const double spread = (of_cases[i].high - of_cases[i].low) / std::sqrt(static_cast<double>(rounds[i]));
        const double error = rounds[i] < 5 ? std::numeric_limits<double>::infinity() : 1.25 / 1.35 * spread;
        variance += error * error / (count * count);
    }
    gain.error = std::sqrt(variance);
    return gain;
}

class Progress {
public:
    Progress(size_t steps, double seconds) : steps_(steps), of_step_(seconds / static_cast<double>(steps)) {}
    void add(size_t steps) { steps_ += steps; }
    void next(const std::string& what) {
        const double left = of_step_ * static_cast<double>(steps_ - step_);
        ++step_;
        std::fprintf(stderr, "[%zu/%zu] %s, about %.0f s left\n", step_, steps_, what.c_str(), left);
    }
    double seconds() const { return of_step_; }

private:
    size_t steps_, step_ = 0;
    double of_step_;
};

std::string variants_with(const std::string& chosen, const std::string& name, uint64_t value) {
    return chosen + (chosen.empty() ? "" : ",") + name + "=" + std::to_string(value);
}

// A way in which a context computes, and what matters there. Contexts on the host's threads are on a device of their
// own, where PoCL has it.
struct Way {
    Options options;
    winnow_device_info device;
    std::vector<Tunable> tunables;
};

winnow_device_info device_of(const Options& options) {
    Backend backend(options);
    return backend.info();
}

std::vector<Way> ways_of(Options options) {
    std::vector<Way> ways{{options, device_of(options), {}}};
    const bool is_one_work_item = std::string(ways[0].device.kernel_shape) == "cpu";
    ways[0].tunables = {is_one_work_item ? group_overhead : groups};
    if (!is_one_work_item || ways[0].device.type != WINNOW_DEVICE_CPU || options.threads < 2 || !can_lend_threads())
        return ways;
    options.host_threads = true;
    const winnow_device_info on_threads = device_of(options);
    // Where that is the same device, it computes on threads of its own.
    if (std::string(on_threads.name) != ways[0].device.name)
        ways.push_back({options, on_threads, {group_overhead, divided_work}});
    return ways;
}

// How much faster each value is than what is chosen, which holds in all of them.
std::vector<Gain> measure(const Options& options, const std::string& chosen, const std::string& name,
                          const std::vector<uint64_t>& values, Progress& progress) {
    Options with = options;
    with.variants = chosen;
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<Backend>(with));
    for (const uint64_t value : values) {
        with.variants = variants_with(chosen, name, value);
        backends.push_back(std::make_unique<Backend>(with));
    }
    std::vector<std::vector<Quartiles>> logarithms(values.size());
    std::vector<size_t> counts;
    for (const AttentionSizes& sizes : cases()) {
        progress.next(name + ": " + label_of(sizes));
        std::vector<std::unique_ptr<Attention>> problems;
        std::vector<Turn> turns;
        for (const std::unique_ptr<Backend>& backend : backends) {
            problems.push_back(std::make_unique<Attention>(*backend, sizes));
            turns.push_back({[problem = problems.back().get()] { problem->run(); }});
        }
        const std::vector<std::vector<double>> rounds = take_rounds(turns, progress.seconds());
        counts.push_back(rounds.size());
        for (size_t value = 0; value < values.size(); ++value) {
            std::vector<double> ratios;
            for (const std::vector<double>& round : rounds) ratios.push_back(std::log(round[0] / round[value + 1]));
            logarithms[value].push_back(quartiles(ratios));
        }
    }
    std::vector<Gain> gains;
    for (size_t value = 0; value < values.size(); ++value) {
        gains.push_back(gain_of(logarithms[value], counts));
        print_row({name + "=" + std::to_string(values[value]), fixed(100 * std::expm1(gains[value].mean), 1) + " %",
                   fixed(100 * gains[value].error, 1) + " %"});
    }
    return gains;
}

// The fastest value, if it is so beyond the noise, and once more by itself: of many the luckiest looks faster than it
// is.
std::optional<uint64_t> choose(const Options& options, const std::string& chosen, const Tunable& tunable,
                               Progress& progress) {
    const std::vector<Gain> gains = measure(options, chosen, tunable.name, tunable.values, progress);
    const auto best = std::max_element(gains.begin(), gains.end(),
                                       [](const Gain& one, const Gain& other) { return one.mean < other.mean; });
    if (!best->is_real(3)) return std::nullopt;
    const uint64_t value = tunable.values[static_cast<size_t>(best - gains.begin())];
    progress.add(cases().size());
    std::printf("again:\n");
    if (!measure(options, chosen, tunable.name, {value}, progress)[0].is_real(2)) return std::nullopt;
    return value;
}

// Where the backend looks.
std::filesystem::path default_file() {
    if (const char* named = std::getenv("WINNOW_TUNING"); named != nullptr && named[0] != '\0')
        if (std::string_view(named) != "off") return named;
    const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
    if (config != nullptr && config[0] == '/') return std::filesystem::path(config) / "winnow" / "tuning.json";
    if (home != nullptr && home[0] == '/') return std::filesystem::path(home) / ".config" / "winnow" / "tuning.json";
    throw std::runtime_error("tune: neither XDG_CONFIG_HOME nor HOME is an absolute path; --out says where to write");
}

bool is_of(const nlohmann::json& entry, const winnow_device_info& device) {
    return entry.at("device") == device.name && entry.at("platform") == device.platform &&
           entry.at("driver") == device.driver_version;
}

// What is in the file of other devices, and of these with other drivers.
nlohmann::json others_in(const std::filesystem::path& file, const std::vector<Way>& ways) {
    nlohmann::json others = nlohmann::json::array();
    std::error_code failed;
    if (!std::filesystem::exists(file, failed)) return others;
    try {
        const nlohmann::json before = read_json(file);
        if (before.at("winnow_tuning") != 1) throw std::runtime_error("of another version");
        for (const nlohmann::json& entry : before.at("devices"))
            if (std::none_of(ways.begin(), ways.end(), [&](const Way& way) { return is_of(entry, way.device); }))
                others.push_back(entry);
    } catch (const std::exception& error) {
        throw std::runtime_error("tune: " + file.string() + " is no tuning file: " + error.what());
    }
    return others;
}

void write(const std::filesystem::path& file, const nlohmann::json& json) {
    if (file.has_parent_path()) std::filesystem::create_directories(file.parent_path());
    const std::filesystem::path temporary = file.string() + ".part";
    std::ofstream stream(temporary);
    stream << json.dump(2) << "\n";
    stream.close();
    if (!stream) throw std::runtime_error("tune: cannot write " + temporary.string() + ": " + std::strerror(errno));
    std::filesystem::rename(temporary, file);
}

} // namespace

int run_tune(int argc, char** argv) {
    Options options;
    options.threads = std::max(std::thread::hardware_concurrency(), 1u);
    std::string out;
    double seconds = 120;
    CLI::App app("Finds how a backend best divides its work on a device, and writes it into the file that it reads.");
    app.add_option("--backend", options.backend, "name or path of the backend (default: opencl)");
    app.add_option("--device", options.device, "device, as for winnow_context_desc");
    app.add_option("--seconds", seconds, "time limit of measuring; compiling kernels comes on top")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--threads", options.threads, "threads that a host lends a CPU")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--out", out, "file (default: winnow/tuning.json in $XDG_CONFIG_HOME or ~/.config)");
    CLI11_PARSE(app, argc, argv);
    if (options.backend == "reference")
        throw std::runtime_error("tune: --backend reference: it divides no work, expected opencl or another backend");
    const std::filesystem::path file = out.empty() ? default_file() : std::filesystem::path(out);
    setenv("WINNOW_TUNING", "off", 1); // what is there already is not what is compared with
    offer_host_threads(options.threads);

    const std::vector<Way> ways = ways_of(options);
    nlohmann::json json{{"winnow_tuning", 1}, {"devices", others_in(file, ways)}};
    size_t steps = 0;
    for (const Way& way : ways) steps += way.tunables.size() * cases().size();
    Progress progress(steps, seconds);
    std::map<std::string, nlohmann::json> entries; // by the device's name
    std::map<std::string, std::string> chosen;
    for (const Way& way : ways) {
        const winnow_device_info& device = way.device;
        std::printf("%s (%s, driver %s)%s, kernel shape %s\n", device.name, device.platform, device.driver_version,
                    way.options.host_threads ? ", on the host's threads" : "", device.kernel_shape);
        print_row({"", "faster", "error"});
        nlohmann::json& entry = entries[device.name];
        entry.update({{"device", device.name},
                      {"platform", device.platform},
                      {"driver", device.driver_version},
                      {"date", today()}});
        for (const Tunable& tunable : way.tunables) {
            std::string& its = chosen[device.name];
            const std::optional<uint64_t> value = choose(way.options, its, tunable, progress);
            if (!value) continue;
            its = variants_with(its, tunable.name, *value);
            entry[tunable.name] = *value;
        }
    }
    for (const auto& [name, entry] : entries) {
        json["devices"].push_back(entry);
        std::printf("%s: %s\n", name.c_str(),
                    chosen[name].empty() ? "nothing is faster beyond the noise" : chosen[name].c_str());
    }
    write(file, json);
    std::printf("wrote %s\n", file.string().c_str());
    return 0;
}

} // namespace winnow::bench
