// winnow-bench: how fast a backend's operations are, as ratios to the limits of the machine and to ggml, taken in one
// run.
#include <cstdio>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string_view>

#include <CLI/CLI.hpp>

#include "compare.hpp"
#include "harness.hpp"
#include "json_file.hpp"
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

nlohmann::json measure_all(const Options& options, int repeats) {
    const std::vector<std::pair<const char*, Bench>> benches = chosen(options.filter);
    Backend backend(options);
    std::printf("device: %s (%s), kernel shape %s\n", backend.info().name, backend.info().platform,
                backend.info().kernel_shape);
    std::vector<nlohmann::json> runs(static_cast<size_t>(repeats), nlohmann::json::object());
    for (nlohmann::json& run : runs)
        for (const auto& [name, bench] : benches) run[name] = bench(options, backend);
    const nlohmann::json what{{"kv_heads", options.kv_heads},
                              {"threads", options.threads},
                              {"host_threads", options.host_threads},
                              {"variants", options.variants}}; // what rows do not tell
    nlohmann::json report{{"device", backend.info().name}, {"platform", backend.info().platform}, {"options", what}};
    report["log"] = backend.messages(); // such as that of a tuning file
    if (repeats == 1)
        report.update(runs.front());
    else
        report["repeats"] = runs;
    return report;
}

int run(int argc, char** argv) {
    Options options;
    std::string json_file, old_file, from_file;
    int repeats = 1;
    CLI::App app(
        "Measures the operations of a Winnow backend. Times are the shortest of many; what is compared takes turns.");
    app.add_option("--backend", options.backend, "name or path of the backend (default: opencl)");
    app.add_option("--device", options.device, "device, as for winnow_context_desc");
    app.add_option("--variants", options.variants, "forced kernel variants, see docs/variants.md");
    app.add_option("--filter", options.filter, "only benchmarks whose name contains this");
    app.add_option("--groups", options.groups, "query heads per KV head")->delimiter(',');
    app.add_option("--head-sizes", options.head_sizes, "head sizes")->delimiter(',');
    app.add_option("--keys", options.key_counts, "numbers of keys of the decode step")->delimiter(',');
    app.add_option("--kv-heads", options.kv_heads, "KV heads of the decode step")->check(CLI::PositiveNumber);
    app.add_option("--seconds", options.seconds, "time for each row")->check(CLI::PositiveNumber);
    app.add_option("--threads", options.threads, "threads of ggml")->check(CLI::PositiveNumber);
    app.add_flag("--host-threads", options.host_threads,
                 "lend the backend the threads that ggml uses, as the plugin for llama.cpp does");
    const CLI::CheckedTransformer formats(storage_formats());
    auto* type = app.add_option("--type", options.type, "storage format of K, and of V unless --v-type says otherwise")
                     ->transform(formats);
    const auto* v_type = app.add_option("--v-type", options.v_type, "storage format of V")->transform(formats);
    app.add_option("--json", json_file, "file for the results");
    app.add_option("--repeat", repeats, "measures all so many times, which tells how much figures differ by themselves")
        ->check(CLI::Range(1, 1000));
    CLI::Option* compare =
        app.add_option("--compare", old_file, "an older file of --json: tells which times changed beyond their noise");
    app.add_option("--from", from_file, "a file of --json to compare, instead of measuring")->needs(compare);
    CLI11_PARSE(app, argc, argv);
    if (*type && !*v_type) options.v_type = options.type;

    const nlohmann::json before = old_file.empty() ? nlohmann::json() : read_json(old_file); // sooner than measuring
    const nlohmann::json report = from_file.empty() ? measure_all(options, repeats) : read_json(from_file);
    if (!json_file.empty()) {
        std::ofstream file(json_file);
        file << report.dump(2) << "\n";
        if (!file.flush()) throw std::runtime_error("cannot write " + json_file);
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
