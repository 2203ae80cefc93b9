// winnow-bench: how fast a backend's operations are, as ratios to the limits of the machine and to ggml, taken in one
// run.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include <CLI/CLI.hpp>

#include "compare.hpp"
#include "harness.hpp"
#include "json_file.hpp"
#include "plain_device.hpp"
#include "tune.hpp"

namespace winnow::bench {
namespace {

using Bench = nlohmann::json (*)(const Options&, Backend&);

std::vector<std::pair<const char*, Bench>> chosen(const std::string& filter) {
    const std::pair<const char*, Bench> benches[] = {{"sdpa_vector", bench_sdpa_vector},
                                                     {"sparse_v", bench_sparse_v},
                                                     {"sdpa_prefill", bench_sdpa_prefill},
                                                     {"kv_append", bench_kv_append},
                                                     {"slots", bench_slots},
                                                     {"cache", bench_cache},
                                                     {"steps", bench_steps},
                                                     {"sequences", bench_sequences},
                                                     {"step_cost", bench_step_cost},
                                                     {"recall", bench_recall},
                                                     {"growth", bench_growth}};
    std::vector<std::pair<const char*, Bench>> found;
    std::string names;
    for (const auto& bench : benches) {
        if (std::string_view(bench.first).find(filter) != std::string_view::npos) found.push_back(bench);
        names += std::string(names.empty() ? "" : ", ") + bench.first;
    }
    if (found.empty()) throw std::runtime_error("--filter: no name of " + names + " contains " + filter);
    return found;
}

// What is measured one after another: rows say which it was, where there are several.
struct Choices {
    std::vector<std::string> devices{""}, variants{""};
    std::vector<uint32_t> types{WINNOW_TYPE_F16}, v_types; // no v_types: those of K
};

// Pairs of K's and V's, one by one; one of either goes with each of the other.
std::vector<Formats> formats_of(const Choices& choices) {
    const std::vector<uint32_t>&k = choices.types, &v = choices.v_types.empty() ? choices.types : choices.v_types;
    if (k.size() != v.size() && k.size() != 1 && v.size() != 1)
        throw std::runtime_error("--v-type: given are " + std::to_string(v.size()) + " formats, expected one, or " +
                                 std::to_string(k.size()) + " as of --type");
    std::vector<Formats> formats;
    for (size_t i = 0; i < std::max(k.size(), v.size()); ++i)
        formats.push_back({k[k.size() == 1 ? 0 : i], v[v.size() == 1 ? 0 : i]});
    return formats;
}

// Adds to `all` a text that it does not end with yet, for devices that are measured one after another.
void join(nlohmann::json& all, const std::string& text) {
    std::string joined = all.is_string() ? all.get<std::string>() : "";
    const std::string before = "; " + joined + "; ";
    if (before.find("; " + text + "; ") != std::string::npos) return;
    all = joined.empty() ? text : joined + "; " + text;
}

// Adds the rows of one device and its variants to each run of the report.
void measure(const Options& options, const std::vector<std::pair<const char*, Bench>>& benches,
             const nlohmann::json& which, std::vector<nlohmann::json>& runs, nlohmann::json& report) {
    Backend backend(options);
    const winnow_device_info& device = backend.info();
    std::printf("device: %s (%s), kernel shape %s%s%s\n", device.name, device.platform, device.kernel_shape,
                options.variants.empty() ? "" : ", variants ", options.variants.c_str());
    join(report["device"], device.name);
    join(report["platform"], device.platform);
    join(report["driver"], device.driver_version);
    join(report["platform_version"], platform_version(backend));
    join(report["winnow"], backend.version());
    for (nlohmann::json& run : runs)
        for (const auto& [name, bench] : benches)
            for (nlohmann::json& row : bench(options, backend)) {
                for (const auto& [key, value] : which.items()) row[key] = key == "device" ? device.name : value;
                run[name].push_back(std::move(row));
            }
    for (const std::string& message : backend.messages()) report["log"].push_back(message); // as of a tuning file
}

nlohmann::json measure_all(const Options& common, const Choices& choices, int repeats) {
    const std::vector<std::pair<const char*, Bench>> benches = chosen(common.filter);
    std::vector<nlohmann::json> runs(static_cast<size_t>(repeats), nlohmann::json::object());
    const nlohmann::json variants =
        choices.variants.size() == 1 ? nlohmann::json(choices.variants.front()) : nlohmann::json(choices.variants);
    const nlohmann::json what{{"kv_heads", common.kv_heads},
                              {"threads", common.threads},
                              {"host_threads", common.host_threads},
                              {"variants", variants}}; // what rows do not tell
    nlohmann::json report{{"date", today()}, {"options", what}, {"log", nlohmann::json::array()}};
    for (const std::string& device : choices.devices)
        for (const std::string& variant : choices.variants) {
            Options options = common;
            options.device = device;
            options.variants = variant;
            nlohmann::json which = nlohmann::json::object();
            if (choices.devices.size() > 1) which["device"] = nullptr; // by its name
            if (choices.variants.size() > 1) which["variants"] = variant.empty() ? "chosen" : variant;
            measure(options, benches, which, runs, report);
        }
    if (repeats == 1)
        report.update(runs.front());
    else
        report["repeats"] = runs;
    return report;
}

void add_options(CLI::App& app, Options& options, Choices& choices) {
    app.add_option("--backend", options.backend, "name or path of the backend (default: opencl)");
    app.add_option("--device", choices.devices, "device, as for winnow_context_desc; several: one after another");
    app.add_option("--variants", choices.variants,
                   "forced kernel variants, see docs/variants.md; several: one after another, of which \"\" forces "
                   "none");
    app.add_option("--filter", options.filter, "only benchmarks whose name contains this");
    app.add_option("--groups", options.groups, "query heads per KV head")->delimiter(',');
    app.add_option("--head-sizes", options.head_sizes, "head sizes")->delimiter(',');
    app.add_option("--keys", options.key_counts, "numbers of keys of the decode step")->delimiter(',');
    app.add_option("--kv-heads", options.kv_heads, "KV heads of the decode step")->check(CLI::PositiveNumber);
    app.add_option("--layers", options.layers,
                   "layers through which each turn of growth goes, so that caches of the processor hold what they hold "
                   "with a model; of each cache fewer where these would take more than --layer-memory, one at least")
        ->check(CLI::PositiveNumber)
        ->capture_default_str();
    app.add_option("--layer-memory", options.layer_memory,
                   "MiB that all layers of a cache of growth take at most, cold rows included")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
        ->capture_default_str();
    app.add_option("--seconds", options.seconds, "time for each row")->check(CLI::PositiveNumber);
    app.add_option("--threads", options.threads, "threads of ggml")->check(CLI::PositiveNumber);
    if (can_lend_threads())
        app.add_flag("--host-threads", options.host_threads,
                     "lend the backend the threads that ggml uses, as the plugin for llama.cpp does");
    const CLI::CheckedTransformer formats(storage_formats());
    app.add_option("--type", choices.types, "storage formats of K, and of V unless --v-type says otherwise")
        ->delimiter(',')
        ->transform(formats);
    app.add_option("--v-type", choices.v_types, "storage formats of V: one of each of --type, or one with all of them")
        ->delimiter(',')
        ->transform(formats);
}

int run(int argc, char** argv) {
    Options options;
    Choices choices;
    std::string json_file, old_file, from_file;
    int repeats = 1;
    CLI::App app(
        "Measures the operations of a Winnow backend. Times are the shortest of many; what is compared takes turns.");
    add_options(app, options, choices);
    app.add_option("--json", json_file, "file for the results");
    app.add_option("--repeat", repeats, "measures all so many times, which tells how much figures differ by themselves")
        ->check(CLI::Range(1, 1000));
    CLI::Option* compare =
        app.add_option("--compare", old_file, "an older file of --json: tells which times changed beyond their noise");
    app.add_option("--from", from_file, "a file of --json to compare, instead of measuring")->needs(compare);
    CLI11_PARSE(app, argc, argv);
    options.formats = formats_of(choices);

    const nlohmann::json before = old_file.empty() ? nlohmann::json() : read_json(old_file); // sooner than measuring
    const nlohmann::json report = from_file.empty() ? measure_all(options, choices, repeats) : read_json(from_file);
    if (!json_file.empty()) {
        std::ofstream file(json_file);
        file << report.dump(2) << "\n";
        if (!file.flush()) throw std::runtime_error("cannot write " + json_file + ": " + std::strerror(errno));
    }
    if (!old_file.empty()) std::fputs(changes(before, report).c_str(), stdout);
    return 0;
}

} // namespace
} // namespace winnow::bench

int main(int argc, char** argv) {
    try {
        if (argc > 1 && std::string_view(argv[1]) == "tune") return winnow::bench::run_tune(argc - 1, argv + 1);
        return winnow::bench::run(argc, argv);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "winnow-bench: %s\n", error.what());
        return 1;
    }
}
