// The `winnow` command: parses the command line and calls the subcommand.
#include <exception>
#include <iostream>
#include <string_view>

#include <CLI/CLI.hpp>

#include "bench.hpp"
#include "eval.hpp"
#include "info.hpp"
#include "plan/plan.hpp"

int main(int argc, char** argv) {
    CLI::App app{"Tools around Winnow, the attention plugin."};
    app.require_subcommand(1);

    winnow::tools::InfoOptions info;
    CLI::App* info_command =
        app.add_subcommand("info", "List backends, drivers, devices, and which kernel would run on them");
    info_command->add_option("--backend", info.backends,
                             "Backend by short name or path, may be repeated (default: opencl and reference)");
    info_command->add_option("--device", info.device,
                             "Only this device: a number, gpu, cpu, or a part of its name (default: all)");
    info_command->add_option("--variants", info.variants, "Forces kernel variants, key=value,...; key=help lists them");
    info_command->add_flag("--json", info.json, "Print JSON");

    winnow::tools::PlanOptions plan;
    CLI::App* plan_command = app.add_subcommand(
        "plan", "Say from which length on Winnow takes less memory with a model, and what each configuration loses");
    plan_command->add_option("--model", plan.model, "GGUF file")->required();
    plan_command->add_option("--context", plan.context, "Tokens of a full context (default: what the model has)");
    plan_command->add_option("--budget", plan.budgets, "Also winnow:budget=..., as 1/3, 512 or 64M; may be repeated");
    plan_command->add_option("--kv", plan.kv,
                             "Also this configuration, may be repeated: a string of WINNOW_KV, or cpu:k=TYPE,v=TYPE or "
                             "inplace:k=TYPE,v=TYPE for llama.cpp's own cache");
    plan_command->add_option("--ubatch", plan.ubatch, "llama.cpp's -ub")
        ->check(CLI::Range(1, 1 << 20))
        ->capture_default_str();
    plan_command->add_option("--max-kld", plan.max_kld, "KL divergence that a recommendation may have lost")
        ->check(CLI::NonNegativeNumber)
        ->capture_default_str();
    plan_command->add_option("--backend", plan.backend, "Backend that answers, by short name or path")
        ->capture_default_str();
    plan_command->add_option("--json", plan.json, "Write JSON to this file; - prints it instead of the table");
    plan_command->add_option("--plot", plan.plot, "Draw memory over context into this .svg file");

    // Their command lines, --help included, are parsed by the program that they are.
    app.add_subcommand("eval", "Measure what configurations of the KV cache cost in quality, through llama.cpp");
    app.add_subcommand("profile", "Measure how spread out a model's attention is, layer by layer, through llama.cpp");
    app.add_subcommand("calibrate", "The same, and train the networks of the policy learned and codebooks of recall");
    app.add_subcommand("allocate", "Find the layers of a model that are worth more bits, and those that bear fewer");

    app.add_subcommand("tune", "Find how a backend best divides its work on a device, for the file that it reads");
    app.add_subcommand("bench", "Measure how fast the operations are, against what the memory gives and ggml");

    try {
        if (argc > 1 && std::string_view(argv[1]) == "bench") winnow::tools::run_bench(argc - 2, argv + 2);
        if (argc > 1 && std::string_view(argv[1]) == "tune") winnow::tools::run_bench(argc - 1, argv + 1);
        if (argc > 1 && std::string_view(argv[1]) == "eval") winnow::tools::run_eval(argc - 2, argv + 2);
        for (const char* const other : {"profile", "calibrate", "allocate"})
            if (argc > 1 && std::string_view(argv[1]) == other) winnow::tools::run_eval(argc - 1, argv + 1);
        CLI11_PARSE(app, argc, argv);
        if (*info_command) return winnow::tools::run_info(info, std::cout, std::cerr);
        if (*plan_command) return winnow::tools::run_plan(plan, std::cout, std::cerr);
    } catch (const std::exception& error) {
        std::cerr << "winnow: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
