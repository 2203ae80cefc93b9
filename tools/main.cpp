// The `winnow` command: parses the command line and calls the subcommand.
#include <algorithm>
#include <exception>
#include <iostream>
#include <stdexcept>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "bench.hpp"
#include "doctor.hpp"
#include "info.hpp"
#include "installation.hpp"
#include "plan/plan.hpp"
#include "python_programs.hpp"
#include "run.hpp"

namespace {

using namespace winnow::tools;

CLI::App* add_info(CLI::App& app, InfoOptions& info) {
    CLI::App* command =
        app.add_subcommand("info", "List backends, drivers, devices, and which kernel would run on them");
    command->add_option("--backend", info.backends,
                        "Backend by short name or path, may be repeated (default: opencl and reference)");
    command->add_option("--device", info.device,
                        "Only this device: a number, gpu, cpu, or a part of its name (default: all)");
    command->add_option("--variants", info.variants, "Forces kernel variants, key=value,...; key=help lists them");
    command->add_flag("--json", info.json, "Print JSON");
    return command;
}

CLI::App* add_plan(CLI::App& app, PlanOptions& plan) {
    CLI::App* command = app.add_subcommand(
        "plan", "Say from which length on Winnow takes less memory with a model, and what each configuration loses");
    command->add_option("--model", plan.model, "GGUF file")->required();
    command->add_option("--context", plan.context, "Tokens of a full context (default: what the model has)");
    command->add_option("--budget", plan.budgets, "Also winnow:budget=..., as 1/3, 512 or 64M; may be repeated");
    command->add_option("--kv", plan.kv,
                        "Also this configuration, may be repeated: a string of WINNOW_KV, or cpu:k=TYPE,v=TYPE or "
                        "inplace:k=TYPE,v=TYPE for llama.cpp's own cache");
    command->add_option("--ubatch", plan.ubatch, "llama.cpp's -ub")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    command->add_option("--max-kld", plan.max_kld, "KL divergence that a recommendation may have lost")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    command->add_option("--backend", plan.backend, "Backend that answers, by short name or path")
        ->capture_default_str();
    command->add_option("--json", plan.json, "Write JSON to this file; - prints it instead of the table");
    command->add_option("--plot", plan.plot, "Draw memory over context into this .svg file");
    return command;
}

CLI::App* add_run(CLI::App& app, RunOptions& run) {
    CLI::App* command = app.add_subcommand(
        "run", "Start a program of llama.cpp's with the plugin, and say at its end whether Winnow was called");
    command->footer("winnow run [OPTIONS] -- PROGRAM [ARGUMENTS]");
    CLI::Option* kv = command->add_option(
        "--kv", run.kv, "WINNOW_KV, as winnow:budget=1/4 (default: WINNOW_KV where it is set, else winnow)");
    command
        ->add_flag_callback(
            "--in-place", [&run] { run.kv = ""; }, "Leave caches to llama.cpp, and attend to them in place")
        ->excludes(kv);
    command->add_option("--device", run.device, "WINNOW_DEVICE: gpu, cpu, a number, or a part of a name");
    command->add_option("--report", run.report, "WINNOW_REPORT: the file for the plugin's report");
    return command;
}

CLI::App* add_doctor(CLI::App& app, bool& is_json) {
    CLI::App* command =
        app.add_subcommand("doctor", "Check drivers, devices, folders, plugin and variables, and say what to do");
    command->add_flag("--json", is_json, "Print JSON");
    return command;
}

CLI::App* add_path(CLI::App& app, std::string& what) {
    CLI::App* command = app.add_subcommand("path", "Print where a part of this installation is");
    command
        ->add_option("what", what,
                     "ggml: the plugin, for GGML_BACKEND_PATH; library: the backend; include: the headers; cmake: the "
                     "CMake package")
        ->required()
        ->check(CLI::IsMember({"ggml", "library", "include", "cmake"}));
    return command;
}

void add_other_programs(CLI::App& app) {
    // Their command lines, --help included, are parsed by the program that they are.
    app.add_subcommand("profile", "Measure how spread out a model's attention is, layer by layer, through llama.cpp");
    app.add_subcommand("calibrate", "The same, and train the networks of the policy learned and codebooks of recall");
    app.add_subcommand("eval", "Measure what configurations of the KV cache cost in quality (the lab)");
    app.add_subcommand("allocate", "Find the layers that are worth more bits, and those that bear fewer (the lab)");

    app.add_subcommand("top", "Show by layer and head what the caches of a running process hold (Python package)");
    app.add_subcommand("tune", "Find how a backend best divides its work on a device, for the file that it reads");
    app.add_subcommand("bench", "Measure how fast the operations are, against what the memory gives and ggml");
}

// Becomes another program where the first argument names one.
void start_other_program(int argc, char** argv) {
    const std::string_view name = argc > 1 ? argv[1] : "";
    if (name == "bench") run_bench(argc - 2, argv + 2);
    if (name == "tune") run_bench(argc - 1, argv + 1);
    if (name == "top")
        throw std::runtime_error(
            "top is a part of the Python package winnowkv: install its wheel, then call python3 -m "
            "winnowkv top");
    if (name == "profile" || name == "calibrate") run_calibrate(argc - 1, argv + 1);
    if (name == "eval" || name == "allocate") run_lab(argc - 1, argv + 1);
}

// How many arguments are the command's own. Those behind -- are of the program that `winnow run` starts.
int take_program(int argc, char** argv, RunOptions& run) {
    char** const end = argv + argc;
    char** const mark = std::find(argv, end, std::string_view("--"));
    if (mark == end || std::string_view(argv[1]) != "run") return argc;
    run.command.assign(mark + 1, end);
    return static_cast<int>(mark - argv);
}

} // namespace

int main(int argc, char** argv) {
    CLI::App app{"Tools around Winnow, the attention plugin."};
    app.require_subcommand(1);
    app.set_version_flag("--version", "winnow " WINNOW_PROJECT_VERSION);
    InfoOptions info;
    PlanOptions plan;
    RunOptions run;
    bool is_json = false;
    std::string what;
    const CLI::App* const info_command = add_info(app, info);
    const CLI::App* const plan_command = add_plan(app, plan);
    const CLI::App* const run_command = add_run(app, run);
    const CLI::App* const doctor_command = add_doctor(app, is_json);
    const CLI::App* const path_command = add_path(app, what);
    add_other_programs(app);
    try {
        start_other_program(argc, argv);
        const int own = take_program(argc, argv, run);
        try {
            app.parse(own, argv);
        } catch (const CLI::ParseError& error) {
            const int status = app.exit(error);
            return status != 0 && argc > 1 && std::string_view(argv[1]) == "run" ? not_started : status;
        }
        if (*info_command) return run_info(info, std::cout, std::cerr);
        if (*plan_command) return run_plan(plan, std::cout, std::cerr);
        if (*run_command) return run_program(run, std::cerr);
        if (*doctor_command) return run_doctor(is_json, std::cout);
        if (*path_command) print_path(what, std::cout);
    } catch (const std::exception& error) {
        std::cerr << "winnow: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
