// `winnow tune`: tries numbers by which a backend divides its work, one after another, each against what holds without
// it, and writes those that are faster beyond the noise into the file that the backend reads.
#include "tune.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>

#include <CLI/CLI.hpp>

#include "attention.hpp"

namespace winnow::bench {
namespace {

struct Tunable {
    std::string name; // of the variants and of the file
    std::vector<uint64_t> values;
};

const Tunable group_overhead{"group_overhead", {4'000, 10'000, 30'000, 90'000, 300'000}};
const Tunable divided_work{"divided_work", {50'000, 100'000, 300'000, 900'000, 3'000'000}};
const Tunable groups{"groups", {1, 2, 3, 4, 6, 8, 12, 16}};

// Between small attentions, of which dividing them decides, and one that the memory does.
std::vector<AttentionSizes> cases() {
    std::vector<AttentionSizes> all;
    for (const uint32_t type : {WINNOW_TYPE_F16, WINNOW_TYPE_TURBO4})
        for (const int64_t group : {1, 4})
            for (const int64_t keys : {256, 1024, 4096}) all.push_back({8, group, 1, keys, 128, type, type});
    return all;
}

// How much faster a value is than what holds, in logarithms over the cases: the mean, and its standard error.
struct Gain {
    double mean = 0, error = 0;
};

Gain gain_of(const std::vector<double>& logarithms) {
    const auto count = static_cast<double>(logarithms.size());
    Gain gain;
    for (const double each : logarithms) gain.mean += each / count;
    for (const double each : logarithms) gain.error += (each - gain.mean) * (each - gain.mean);
    gain.error = std::sqrt(gain.error / (count * (count - 1)));
    return gain;
}

class Progress {
public:
    Progress(size_t steps, double seconds) : steps_(steps), seconds_(seconds) {}
    void next(const std::string& what) {
        const double left = seconds_ * static_cast<double>(steps_ - step_) / static_cast<double>(steps_);
        ++step_;
        std::fprintf(stderr, "[%zu/%zu] %s, about %.0f s left\n", step_, steps_, what.c_str(), left);
    }

private:
    size_t steps_, step_ = 0;
    double seconds_;
};

std::string variants_with(const std::string& chosen, const Tunable& tunable, uint64_t value) {
    return chosen + (chosen.empty() ? "" : ",") + tunable.name + "=" + std::to_string(value);
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
    if (!is_one_work_item || ways[0].device.type != WINNOW_DEVICE_CPU || options.threads < 2) return ways;
    options.host_threads = true;
    ways.push_back({options, device_of(options), {divided_work}});
    if (std::string(ways[1].device.name) != ways[0].device.name)
        ways[1].tunables.insert(ways[1].tunables.begin(), group_overhead);
    return ways;
}

// The value that is fastest, if it is so by more than a percent and twice its error; what is chosen already holds.
std::optional<uint64_t> choose(const Options& options, const std::string& chosen, const Tunable& tunable,
                               double seconds_of_case, Progress& progress) {
    Options with = options;
    with.variants = chosen;
    std::vector<std::unique_ptr<Backend>> backends;
    backends.push_back(std::make_unique<Backend>(with));
    for (const uint64_t value : tunable.values) {
        with.variants = variants_with(chosen, tunable, value);
        backends.push_back(std::make_unique<Backend>(with));
    }
    std::vector<std::vector<double>> logarithms(tunable.values.size());
    for (const AttentionSizes& sizes : cases()) {
        progress.next(tunable.name + ": " + type_names(sizes.k_type, sizes.v_type) +
                      " G=" + std::to_string(sizes.group) + " keys=" + std::to_string(sizes.kv_len));
        std::vector<std::unique_ptr<Attention>> problems;
        std::vector<Turn> turns;
        for (const std::unique_ptr<Backend>& backend : backends) {
            problems.push_back(std::make_unique<Attention>(*backend, sizes));
            turns.push_back({[problem = problems.back().get()] { problem->run(); }});
        }
        const std::vector<std::vector<double>> rounds = take_rounds(turns, seconds_of_case);
        for (size_t value = 0; value < logarithms.size(); ++value) {
            std::vector<double> ratios;
            for (const std::vector<double>& round : rounds) ratios.push_back(std::log(round[0] / round[value + 1]));
            logarithms[value].push_back(quartiles(ratios).middle);
        }
    }
    std::optional<uint64_t> best;
    double most = .01;
    for (size_t value = 0; value < logarithms.size(); ++value) {
        const Gain gain = gain_of(logarithms[value]);
        print_row({tunable.name + "=" + std::to_string(tunable.values[value]),
                   fixed(100 * std::expm1(gain.mean), 1) + " %", fixed(100 * gain.error, 1) + " %"});
        if (gain.mean <= most || gain.mean <= 2 * gain.error) continue;
        most = gain.mean;
        best = tunable.values[value];
    }
    return best;
}

std::filesystem::path default_file() {
    const char *config = std::getenv("XDG_CONFIG_HOME"), *home = std::getenv("HOME");
    if (config != nullptr && config[0] == '/') return std::filesystem::path(config) / "winnow" / "tuning.json";
    if (home != nullptr && home[0] == '/') return std::filesystem::path(home) / ".config" / "winnow" / "tuning.json";
    throw std::runtime_error("tune: neither XDG_CONFIG_HOME nor HOME is an absolute path; --out says where to write");
}

std::string today() {
    const std::time_t now = std::time(nullptr);
    char text[16];
    std::tm local{};
    std::strftime(text, sizeof text, "%Y-%m-%d", localtime_r(&now, &local));
    return text;
}

bool is_of(const nlohmann::json& entry, const winnow_device_info& device) {
    return entry.at("device") == device.name && entry.at("platform") == device.platform &&
           entry.at("driver") == device.driver_version;
}

// What is in the file of other devices, and of these with other drivers.
nlohmann::json others_in(const std::filesystem::path& file, const std::vector<Way>& ways) {
    nlohmann::json others = nlohmann::json::array();
    std::ifstream stream(file);
    if (!stream) return others;
    try {
        const nlohmann::json before = nlohmann::json::parse(stream);
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
    if (!stream) throw std::runtime_error("tune: cannot write " + temporary.string());
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
            const std::optional<uint64_t> value =
                choose(way.options, its, tunable, seconds / static_cast<double>(steps), progress);
            if (!value) continue;
            its = variants_with(its, tunable, *value);
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
