// winnow-measure: how far the probabilities of a model are from the base's under one configuration of its KV cache
// after another, in one process. `winnow eval` starts it; --help says what it reads and writes.
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <stdexcept>
#include <string>
#include <vector>

#include "runs.hpp"
#include <CLI/CLI.hpp>

namespace {

using nlohmann::json;
using namespace winnow::measure;

constexpr const char* description =
    "Runs configurations of the KV cache over contexts of a text and tells, token by token, how far their\n"
    "probabilities are from the base's.\n\n"
    "Standard output begins with a line {\"tokens\", \"contexts\", \"vocabulary\"}. Then each line of standard input\n"
    "{\"context\": number, \"base\": true or false, \"configuration\": {\"backend\": \"cpu\" or \"winnow\", \"k\", "
    "\"v\",\n"
    "\"kv\": text, \"environment\": {name: text or null}}} is answered by a line {\"nll\", \"kld\", \"same_top\": "
    "numbers\n"
    "of each scored token, \"seconds\", \"report\", \"log\"} or {\"error\": text}.";

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

void answer(const json& line) { std::cout << line.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl; }

json to_json(const Result& result) {
    for (const std::vector<double>* numbers : {&result.scores.nll, &result.scores.divergence})
        for (const double number : *numbers)
            if (!std::isfinite(number)) throw std::runtime_error("a score that is not finite: the logits are not");
    json same_top = json::array();
    for (const bool same : result.scores.same_top) same_top.push_back(same ? 1 : 0);
    return {{"nll", result.scores.nll},  {"kld", result.scores.divergence}, {"same_top", same_top},
            {"seconds", result.seconds}, {"report", result.report},         {"log", result.log}};
}

void serve(Runs& runs) {
    answer({{"tokens", runs.tokens()}, {"contexts", runs.contexts()}, {"vocabulary", runs.vocabulary()}});
    for (std::string line; std::getline(std::cin, line);) {
        try {
            const json request = json::parse(line);
            const Configuration configuration = to_configuration(request.at("configuration"));
            answer(
                to_json(runs.run(configuration, request.at("context").get<size_t>(), request.at("base").get<bool>())));
        } catch (const std::exception& error) {
            answer({{"error", error.what()}});
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    try {
        CLI::App app(description, "winnow-measure");
        std::string folder, plugin, model, text;
        Sizes sizes;
        app.add_option("--llama-cpp", folder, "folder of llama.cpp's programs or libraries")->required();
        app.add_option("--plugin", plugin, "libwinnow_ggml.so")->required();
        app.add_option("--model", model, "GGUF file")->required();
        app.add_option("--text", text, "file, UTF-8")->required();
        app.add_option("--context", sizes.context, "tokens of a context")->required()->check(CLI::Range(2, 1 << 24));
        app.add_option("--from", sizes.first_scored, "the first position whose next token is scored")->required();
        app.add_option("--batch", sizes.batch, "llama.cpp's -b")->check(CLI::Range(1, 1 << 20));
        app.add_option("--ubatch", sizes.ubatch, "llama.cpp's -ub")->check(CLI::Range(1, 1 << 20));
        app.add_option("--threads", sizes.threads, "llama.cpp's -t")->check(CLI::Range(1, 1024));
        CLI11_PARSE(app, argc, argv);
        const LlamaApi& api = load_llama(folder);
        Runs runs(api, model, plugin, read_file(text), sizes);
        serve(runs);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "winnow-measure: %s\n", error.what());
        return 1;
    }
}
