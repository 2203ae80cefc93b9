// winnow-measure: how far the probabilities of a model are from the base's, and what it answers, under one
// configuration of its KV cache after another, in one process. `winnow eval` starts it; --help says what it reads and
// writes.
#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <limits>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "dialogues.hpp"
#include "runs.hpp"
#include <CLI/CLI.hpp>

namespace {

using nlohmann::json;
using namespace winnow::measure;

constexpr const char* description = R"(Runs configurations of the KV cache over contexts of a text and tells, token by
token, how far their probabilities are from the base's; or asks them questions and tells their answers.

Standard output begins with a line {"vocabulary", "trained_context": tokens, "no_chat": why the model cannot be asked in
a chat template, or ""}. Each line of standard input is answered by a line, which is {"error": text} where that fails:

{"text": file in UTF-8, or null to let it go, "context": tokens, "from": the first position of a context whose next
    token is scored, "alone_from": the position from which on llama.cpp gets each token in a batch of its own, or null}
    {"tokens", "contexts": how many}; a request that is refused leaves no text
{"configuration", "context": number, "base": true or false}
    {"nll", "kld", "same_top": numbers of each scored token, "seconds", "micro_batches", "report", "log"}
{"configuration", "dialogue": {"turns": [{"text", "question", "prefix"}, ...], "cells", "generate": tokens,
                               "until": text, "chat", "decode": true or false, "find": [text, ...]}}
    {"texts", "prompt_tokens", "question": its first position, "evaluated": tokens,
     "found": positions of each text of "find", "seconds", "micro_batches", "report", "log"}
{"count": text}
    {"tokens"}

A configuration is {"backend": "cpu" or "winnow", "k", "v", "kv": text, "environment": {name: text or null}}.
lab/measure/dialogues.hpp says what the parts of a dialogue are. "report" is the plugin's, with the "family" of each
of its caches beside its "config": the same without a budget.)";

constexpr int64_t most_context = 1 << 24;
constexpr size_t no_position = std::numeric_limits<size_t>::max();

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw std::runtime_error("cannot read " + path);
    return {std::istreambuf_iterator<char>(file), {}};
}

void say(const json& line) { std::cout << line.dump(-1, ' ', false, json::error_handler_t::replace) << std::endl; }

json to_json(const Outcome& outcome) {
    return {{"seconds", outcome.seconds},
            {"micro_batches", outcome.micro_batches},
            {"report", outcome.report},
            {"log", outcome.log}};
}

json to_json(const Result& result) {
    for (const std::vector<double>* numbers : {&result.scores.nll, &result.scores.divergence})
        for (const double number : *numbers)
            if (!std::isfinite(number)) throw std::runtime_error("a score that is not finite: the logits are not");
    json line = to_json(result.outcome);
    line["nll"] = result.scores.nll;
    line["kld"] = result.scores.divergence;
    json& same_top = line["same_top"] = json::array();
    for (const bool same : result.scores.same_top) same_top.push_back(same ? 1 : 0);
    return line;
}

json to_json(const Answers& answers) {
    json line = to_json(answers.outcome);
    line["texts"] = answers.texts;
    line["prompt_tokens"] = answers.prompt_tokens;
    line["question"] = answers.question;
    line["evaluated"] = answers.evaluated;
    line["found"] = answers.found;
    return line;
}

// The text and the sizes of a request, in the place of those before.
void take_text(const json& request, Contexts& contexts, std::optional<Runs>& runs) {
    runs.reset(); // its base takes memory
    if (request.at("text").is_null()) return;
    const auto context = request.at("context").get<int64_t>(), from = request.at("from").get<int64_t>();
    if (context < 2 || context > most_context)
        throw std::runtime_error("contexts of " + std::to_string(context) + " tokens, expected 2 to " +
                                 std::to_string(most_context));
    if (from < 0 || from >= context)
        throw std::runtime_error("scored from position " + std::to_string(from) + ", expected 0 to " +
                                 std::to_string(context - 1));
    const json& alone = request.at("alone_from");
    if (!alone.is_null() && alone.get<int64_t>() < 0)
        throw std::runtime_error("alone from position " + alone.dump() + ", expected 0 or more");
    runs.emplace(contexts, read_file(request.at("text").get<std::string>()), static_cast<size_t>(context),
                 static_cast<size_t>(from), alone.is_null() ? no_position : alone.get<size_t>());
}

json carry_out(const json& request, Contexts& contexts, std::optional<Runs>& runs) {
    if (request.contains("text")) {
        take_text(request, contexts, runs);
        return {{"tokens", runs ? runs->tokens() : 0}, {"contexts", runs ? runs->contexts() : 0}};
    }
    if (request.contains("count")) {
        const auto text = request.at("count").get<std::string>();
        return {{"tokens", tokens_of(contexts.api(), contexts.vocab(), text, true, false).size()}};
    }
    const Configuration configuration = to_configuration(request.at("configuration"));
    if (request.contains("dialogue"))
        return to_json(answer(contexts, configuration, to_dialogue(request.at("dialogue"))));
    if (!runs) throw std::runtime_error("there is no text");
    return to_json(runs->run(configuration, request.at("context").get<size_t>(), request.at("base").get<bool>()));
}

void serve(Contexts& contexts) {
    std::optional<Runs> runs;
    say({{"vocabulary", contexts.vocabulary()},
         {"trained_context", contexts.api().model_n_ctx_train(contexts.model())},
         {"no_chat", reason_against_chat(contexts.api(), contexts.model())}});
    for (std::string line; std::getline(std::cin, line);) {
        try {
            say(carry_out(json::parse(line), contexts, runs));
        } catch (const std::exception& error) {
            say({{"error", error.what()}});
        }
    }
}

} // namespace

int main(int argc, char** argv) {
    try {
        CLI::App app(description, "winnow-measure");
        std::string folder, plugin, model;
        Sizes sizes;
        app.add_option("--llama-cpp", folder, "folder of llama.cpp's programs or libraries")->required();
        app.add_option("--plugin", plugin, "libwinnow_ggml.so")->required();
        app.add_option("--model", model, "GGUF file")->required();
        app.add_option("--batch", sizes.batch, "llama.cpp's -b")->check(CLI::Range(1, 1 << 20));
        app.add_option("--ubatch", sizes.ubatch, "llama.cpp's -ub")->check(CLI::Range(1, 1 << 20));
        app.add_option("--threads", sizes.threads, "llama.cpp's -t")->check(CLI::Range(1, 1024));
        CLI11_PARSE(app, argc, argv);
        const LlamaApi& api = load_llama(folder);
        Contexts contexts(api, model, plugin, sizes);
        serve(contexts);
        return 0;
    } catch (const std::exception& error) {
        std::fprintf(stderr, "winnow-measure: %s\n", error.what());
        return 1;
    }
}
